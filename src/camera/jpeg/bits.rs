//! Entropy-coded data of JPEG, gone over block by block without computing coefficients.

use super::huffman::Table;
use crate::error::{Error, Result};

/// The data ends too early.
pub(super) fn truncated() -> Error {
    Error::source_failed("the JPEG is truncated: its picture data ends too early")
}

/// The data cannot be what it says.
pub(super) fn corrupt(what: &str) -> Error {
    Error::source_failed(format!("the JPEG is corrupt: {what}"))
}

/// Which coefficients and which of their bits a scan carries.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) first: u8,
    pub(super) last: u8,
    pub(super) high: u8,
    pub(super) low: u8,
    pub(super) progressive: bool,
}

/// Reads bits of entropy-coded data, most significant first, with stuffed bytes removed.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    position: usize,
    window: u64,
    filled: u32,
}

impl<'a> Bits<'a> {
    /// Starts reading at a byte position.
    pub(super) fn new(bytes: &'a [u8], position: usize) -> Self {
        Bits { bytes, position, window: 0, filled: 0 }
    }

    /// Fills the window to more than 32 bits where the data reaches that far.
    #[inline]
    fn fill(&mut self) {
        while self.filled <= 48 {
            let Some(&byte) = self.bytes.get(self.position) else { return };
            if byte == 0xff {
                if self.bytes.get(self.position + 1) != Some(&0) {
                    return;
                }
                self.position += 1;
            }
            self.position += 1;
            self.window |= u64::from(byte) << (56 - self.filled);
            self.filled += 8;
        }
    }

    #[inline]
    fn skip(&mut self, number: u32) -> Result<()> {
        if number > self.filled {
            return Err(truncated());
        }
        self.window <<= number;
        self.filled -= number;
        Ok(())
    }

    #[inline]
    fn take(&mut self, number: u32) -> Result<u32> {
        if self.filled < number {
            self.fill();
        }
        let value = if number == 0 { 0 } else { (self.window >> (64 - number)) as u32 };
        self.skip(number)?;
        Ok(value)
    }

    #[inline]
    fn symbol(&mut self, table: Option<&Table>) -> Result<u8> {
        if self.filled < 32 {
            self.fill();
        }
        let table = table.ok_or_else(|| corrupt("a Huffman table is missing"))?;
        let Some((length, symbol)) = table.look_up((self.window >> 48) as u16) else {
            return Err(if self.filled < 16 { truncated() } else { corrupt("an impossible Huffman code") });
        };
        self.skip(length)?;
        Ok(symbol)
    }

    /// Goes over one block of a sequential scan.
    pub(super) fn sequential_block(&mut self, dc: Option<&Table>, ac: Option<&Table>) -> Result<()> {
        let size = self.symbol(dc)?;
        if size > 11 {
            return Err(corrupt("an impossible mean value"));
        }
        self.skip_value(size)?;
        let mut index = 1u32;
        while index < 64 {
            let symbol = self.symbol(ac)?;
            let (run, size) = (u32::from(symbol >> 4), symbol & 15);
            if size == 0 {
                if run != 15 {
                    break;
                }
                index += 16;
                continue;
            }
            index += run + 1;
            self.skip_value(size)?;
        }
        if index > 64 { Err(corrupt("a block runs over its end")) } else { Ok(()) }
    }

    #[inline]
    fn skip_value(&mut self, size: u8) -> Result<()> {
        if self.filled < u32::from(size) {
            self.fill();
        }
        self.skip(u32::from(size))
    }

    /// Goes over one block's share in a progressive scan; `nonzero` tells which of its coefficients are not 0.
    pub(super) fn progressive_block(
        &mut self,
        scan: &Scan,
        dc: Option<&Table>,
        ac: Option<&Table>,
        nonzero: &mut u64,
        end_of_band_run: &mut u32,
    ) -> Result<()> {
        match (scan.first, scan.high) {
            (0, 0) => {
                let size = self.symbol(dc)?;
                if size > 11 {
                    return Err(corrupt("an impossible mean value"));
                }
                self.skip_value(size)
            }
            (0, _) => self.take(1).map(drop),
            (_, 0) => self.first_detail(scan, ac, nonzero, end_of_band_run),
            _ => self.refined_detail(scan, ac, nonzero, end_of_band_run),
        }
    }

    fn first_detail(
        &mut self,
        scan: &Scan,
        ac: Option<&Table>,
        nonzero: &mut u64,
        end_of_band_run: &mut u32,
    ) -> Result<()> {
        if *end_of_band_run > 0 {
            *end_of_band_run -= 1;
            return Ok(());
        }
        let (mut index, last) = (u32::from(scan.first), u32::from(scan.last));
        while index <= last {
            let symbol = self.symbol(ac)?;
            let (run, size) = (u32::from(symbol >> 4), symbol & 15);
            if size == 0 {
                if run == 15 {
                    index += 16;
                    continue;
                }
                *end_of_band_run = (1 << run) - 1 + self.take(run)?;
                return Ok(());
            }
            index += run;
            if index > last {
                return Err(corrupt("a block runs over its end"));
            }
            self.skip_value(size)?;
            *nonzero |= 1 << index;
            index += 1;
        }
        Ok(())
    }

    fn refined_detail(
        &mut self,
        scan: &Scan,
        ac: Option<&Table>,
        nonzero: &mut u64,
        end_of_band_run: &mut u32,
    ) -> Result<()> {
        let (mut index, last) = (u32::from(scan.first), u32::from(scan.last));
        if *end_of_band_run == 0 {
            while index <= last {
                let symbol = self.symbol(ac)?;
                let (mut run, size) = (u32::from(symbol >> 4), symbol & 15);
                match size {
                    0 if run < 15 => {
                        *end_of_band_run = (1 << run) + self.take(run)?;
                        break;
                    }
                    0 => {}
                    1 => {
                        self.take(1)?;
                    }
                    _ => return Err(corrupt("an impossible refinement")),
                }
                while index <= last {
                    if *nonzero >> index & 1 == 1 {
                        self.take(1)?;
                    } else if run == 0 {
                        break;
                    } else {
                        run -= 1;
                    }
                    index += 1;
                }
                if size == 1 {
                    if index > last {
                        return Err(corrupt("a block runs over its end"));
                    }
                    *nonzero |= 1 << index;
                }
                index += 1;
            }
        }
        if *end_of_band_run > 0 {
            while index <= last {
                if *nonzero >> index & 1 == 1 {
                    self.take(1)?;
                }
                index += 1;
            }
            *end_of_band_run -= 1;
        }
        Ok(())
    }

    /// Goes over restart marker `number`, which must be next.
    pub(super) fn restart(&mut self, number: u8) -> Result<()> {
        let position = self.end()?;
        match self.bytes.get(position..position + 2) {
            Some(&[0xff, marker]) if marker == 0xd0 + number => {
                *self = Bits::new(self.bytes, position + 2);
                Ok(())
            }
            Some(_) => Err(corrupt("a restart marker is missing")),
            None => Err(truncated()),
        }
    }

    /// Where the marker behind the entropy-coded data starts; a few bytes of padding are allowed.
    pub(super) fn end(&mut self) -> Result<usize> {
        const PADDING_BYTES: u32 = 4;
        self.skip(self.filled % 8)?;
        let mut surplus_bytes = 0;
        loop {
            self.fill();
            if self.filled < 8 {
                break;
            }
            surplus_bytes += u32::from(self.window >> 56 != 0);
            self.skip(8)?;
            if surplus_bytes > PADDING_BYTES {
                return Err(corrupt("more picture data than the picture needs"));
            }
        }
        let mut position = self.position;
        while self.bytes.get(position) == Some(&0xff) && self.bytes.get(position + 1) == Some(&0xff) {
            position += 1;
        }
        Ok(position)
    }
}
