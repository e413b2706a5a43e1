//! A pointer to a TensorRT object together with the family whose tables it follows.

use super::sys::{self, Method, Object};
use super::version::{Family, Version};
use crate::error::{Error, Result};
use std::ffi::c_void;
use std::marker::PhantomData;

/// Below this address nothing is mapped: TensorRT 10.15 returns 0x238, an upcast null pointer, when it has no driver.
const LOWEST_ADDRESS: usize = 64 << 10;

/// The binary interface of one loaded library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Abi {
    /// The family, which selects the column of the slot table.
    pub(super) family: Family,
    /// The version, whose minor gates appended slots.
    pub(super) version: Version,
}

impl Abi {
    /// The slot of a method, `None` when this version does not have it.
    pub(super) fn slot<M: Method>(self) -> Option<usize> {
        sys::slot_of(&M::SLOTS, self.family, self.version)
    }

    /// Whether this version has a method.
    pub(super) fn has<M: Method>(self) -> bool {
        self.slot::<M>().is_some()
    }
}

/// A non-null pointer to a TensorRT object of class `C`. Copying it copies the address: whether the object still lives is the
/// business of the safe layer.
pub(super) struct Raw<C> {
    object: Object,
    abi: Abi,
    class: PhantomData<*const C>,
}

impl<C> Clone for Raw<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Raw<C> {}

impl<C> Raw<C> {
    /// Takes what TensorRT returned; `None` for null and for wild addresses in the first 64 KiB.
    pub(super) fn new(object: Object, abi: Abi) -> Option<Self> {
        (object.addr() >= LOWEST_ADDRESS).then_some(Raw { object, abi, class: PhantomData })
    }

    /// The address, to be passed to TensorRT.
    pub(super) fn object(self) -> Object {
        self.object
    }

    /// The binary interface.
    pub(super) fn abi(self) -> Abi {
        self.abi
    }

    /// The function behind method `M` and the `this` it wants.
    ///
    /// # Errors
    /// [`crate::ErrorKind::MachineLacks`] when this version does not have the method.
    ///
    /// # Safety
    /// The object is live, its class is `M`'s class, and it belongs to a library of `abi`'s family.
    pub(super) unsafe fn function<M: Method>(self) -> Result<(*mut c_void, M::Function)> {
        let slot = self.abi.slot::<M>().ok_or_else(|| {
            Error::machine_lacks(format!("version {} of this library has no `{}`", self.abi.version, M::NAME))
        })?;
        let this = if M::NAME.starts_with("IParser") {
            self.object
        } else {
            // SAFETY: the caller vouches for a live object; all classes but the parser's have an implementation pointer.
            unsafe { sys::implementation(self.object) }
        };
        // SAFETY: the slot table is that of the library's family and version, so the entry exists and has this signature.
        Ok((this, unsafe { sys::function_in::<M>(this, slot) }))
    }
}

/// `call!(raw, Method, arguments…)`: one virtual call, `?` on a method that this version lacks. Stands inside `unsafe`.
macro_rules! call {
    ($raw:expr, $method:ty $(, $argument:expr)*) => {{
        let (this, function) = $raw.function::<$method>()?;
        function(this $(, $argument)*)
    }};
}
pub(super) use call;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wild_pointers_count_as_null() {
        let abi = Abi { family: Family::TensorRt10, version: Version { major: 10, minor: 15, patch: 1 } };
        for address in [0_usize, 0x238, 0xffff] {
            assert!(Raw::<()>::new(std::ptr::without_provenance_mut(address), abi).is_none(), "{address:#x}");
        }
        assert!(Raw::<()>::new(std::ptr::without_provenance_mut(0x10000), abi).is_some());
    }
}
