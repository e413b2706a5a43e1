//! Device memory under one budget: every allocation of an engine, TensorRT's own included, is counted and may be refused.

use super::context::Context;
use super::memory::DeviceBuffer;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::tensorrt::callbacks::DeviceAllocator;
use crate::units::{Bytes, count};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What one engine may take of a device. The counters are its own and cost no driver call.
pub struct Budget {
    context: Arc<Context>,
    limit: Bytes,
    /// TensorRT's allocations by address.
    live: Mutex<BTreeMap<u64, DeviceBuffer>>,
    allocated: AtomicU64,
    peak: AtomicU64,
    allocations: AtomicU64,
    refused: Mutex<Option<String>>,
}

impl Budget {
    /// A budget of `limit` on the context's device.
    pub fn new(context: &Arc<Context>, limit: Bytes) -> Arc<Budget> {
        Arc::new(Budget {
            context: Arc::clone(context),
            limit,
            live: Mutex::default(),
            allocated: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            allocations: AtomicU64::new(0),
            refused: Mutex::default(),
        })
    }

    /// Memory of our own, for the life of the engine.
    ///
    /// # Errors
    /// [`ErrorKind::Budget`] above the limit or when the device has not that much left.
    pub fn reserve(&self, bytes: usize) -> Result<Arc<DeviceBuffer>> {
        self.take(count(bytes))?;
        DeviceBuffer::new(&self.context, bytes).map(Arc::new).inspect_err(|_| self.give(count(bytes)))
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let added = self.allocated.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            now.checked_add(bytes).filter(|&sum| sum <= self.limit.0)
        });
        match added {
            Ok(before) => {
                self.peak.fetch_max(before + bytes, Ordering::AcqRel);
                self.allocations.fetch_add(1, Ordering::AcqRel);
                Ok(())
            }
            Err(now) => Err(Error::new(
                ErrorKind::Budget,
                format!("found {} in use and {} asked for, expected at most {}", Bytes(now), Bytes(bytes), self.limit),
            )
            .hint("a smaller batch, input or model needs less; `--gpu-budget` raises the limit")),
        }
    }

    fn give(&self, bytes: u64) {
        self.allocated.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// The limit.
    pub fn limit(&self) -> Bytes {
        self.limit
    }

    /// In use now.
    pub fn allocated(&self) -> Bytes {
        Bytes(self.allocated.load(Ordering::Acquire))
    }

    /// Highest use since the last reset.
    pub fn peak(&self) -> Bytes {
        Bytes(self.peak.load(Ordering::Acquire))
    }

    /// Sets the peak back to the present use.
    pub fn reset_peak(&self) {
        self.peak.store(self.allocated().0, Ordering::Release);
    }

    /// Number of allocations so far; must not grow after warmup.
    pub fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Acquire)
    }

    /// What TensorRT has taken, all allocations together.
    pub fn taken_by_tensorrt(&self) -> Bytes {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        Bytes(live.values().map(|buffer| count(buffer.bytes())).sum())
    }

    /// Why TensorRT was refused memory last, and forgets it.
    pub fn take_refusal(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note_refusal(&self, error: &Error) {
        log::error!("TensorRT asked for device memory: {}", error.message());
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.message().to_owned());
    }
}

// SAFETY: every address is the start of a driver allocation of that length, which the driver aligns to at least 256 bytes (larger
// alignments are refused), and it stays in `live` until `free` gets it back.
unsafe impl DeviceAllocator for Budget {
    fn allocate(&self, bytes: u64, alignment: u64) -> Option<u64> {
        let length = usize::try_from(bytes).ok()?;
        let taken = self.take(bytes).and_then(|()| {
            DeviceBuffer::new(&self.context, length)
                .inspect_err(|_| self.give(bytes))
                .map(|buffer| (buffer.address(), buffer))
        });
        match taken {
            Ok((address, buffer)) if address.is_multiple_of(alignment.max(1)) => {
                self.live.lock().unwrap_or_else(PoisonError::into_inner).insert(address, buffer);
                Some(address)
            }
            Ok(_) => {
                self.give(bytes);
                self.note_refusal(&Error::unexpected(format!("found no memory aligned to {alignment} bytes")));
                None
            }
            Err(error) => {
                self.note_refusal(&error);
                None
            }
        }
    }

    fn free(&self, address: u64) -> bool {
        let taken = self.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        if let Some(buffer) = &taken {
            self.give(count(buffer.bytes()));
        }
        taken.is_some()
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Budget({} of {})", self.allocated(), self.limit)
    }
}
