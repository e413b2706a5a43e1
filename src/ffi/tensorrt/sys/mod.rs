//! The binary interface as data: slots, enum values, struct layouts. No logic beyond reading a slot.
//!
//! A public TensorRT object is `{ vtable pointer, implementation pointer }`. Methods go through the implementation's virtual
//! table; the ONNX parser's classes have no implementation pointer and are called on the object itself.

pub(super) mod enums;
mod slots;

use super::version::{Family, Version};
pub(super) use slots::*;
use std::ffi::c_void;

/// A TensorRT object or one of ours, as TensorRT passes it.
pub(super) type Object = *mut c_void;

/// Mark of a method that a family does not have.
const NONE: i16 = -1;

/// A slot that `minor` appended.
const fn since(slot: i16, minor: i16) -> i16 {
    slot + 1000 * minor
}

/// Sizes of a tensor as TensorRT 8 stores them: 36 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Dims32 {
    /// Number of dimensions used, up to 8.
    pub(super) count: i32,
    /// The sizes; -1 where one is dynamic.
    pub(super) sizes: [i32; 8],
}

/// Sizes of a tensor as every later family stores them: 72 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Dims64 {
    /// Number of dimensions used, up to 8.
    pub(super) count: i32,
    /// The sizes; -1 where one is dynamic.
    pub(super) sizes: [i64; 8],
}

const _: () = assert!(size_of::<Dims32>() == 36 && align_of::<Dims32>() == 4);
const _: () = assert!(std::mem::offset_of!(Dims32, sizes) == 4);
const _: () = assert!(size_of::<Dims64>() == 72 && align_of::<Dims64>() == 8);
const _: () = assert!(std::mem::offset_of!(Dims64, sizes) == 8);

/// A C++ method: name, slot in each family, type of the function in the slot.
///
/// # Safety
/// `Function` is an `extern "C-unwind"` function pointer whose first parameter is `this` and whose others have the layout of
/// the C++ signature in every family whose slot is not [`NONE`].
pub(super) unsafe trait Method {
    /// `Class::method`.
    const NAME: &'static str;
    /// Slots by [`Family::column`].
    const SLOTS: [i16; 5];
    /// The function's type.
    type Function: Copy;
}

/// Declares [`Method`]s from the lines of the slot table.
macro_rules! methods {
    ($($name:ident = $cpp:literal fn($($argument:ty),*) $(-> $result:ty)? [$($cell:expr),*];)*) => {
        $(
            #[doc = concat!("`", $cpp, "`")]
            pub(in super::super) enum $name {}
            // SAFETY: slots and signature come from one line of the facts that `tools/tensorrt_slots.py` read; the test
            // `table_equals_the_facts` compares them again.
            unsafe impl super::Method for $name {
                const NAME: &'static str = $cpp;
                const SLOTS: [i16; 5] = [$($cell),*];
                type Function = unsafe extern "C-unwind" fn(Object $(, $argument)*) $(-> $result)?;
            }
        )*
        /// Every line of the table: name and slots.
        #[cfg(test)]
        pub(in super::super) const ALL: &[(&str, [i16; 5])] = &[$(($cpp, [$($cell),*])),*];
    };
}
use methods;

/// The slot in a cell of the table, for a library of that family with this minor version.
pub(super) fn slot_of(slots: &[i16; 5], family: Family, version: Version) -> Option<usize> {
    let cell = usize::try_from(slots[family.column()]).ok()?;
    (usize::from(version.minor) >= cell / 1000).then_some(cell % 1000)
}

/// Reads the function in `slot` of the virtual table that `object` points at.
///
/// # Safety
/// `object` points at a live object whose first word points at a virtual table with more than `slot` entries, and the entry
/// there has `M`'s signature.
pub(super) unsafe fn function_in<M: Method>(object: Object, slot: usize) -> M::Function {
    const { assert!(size_of::<M::Function>() == size_of::<*const c_void>()) };
    // SAFETY: the caller vouches for the object and the number of entries.
    let entry = unsafe { *(*object.cast::<*const *const c_void>()).add(slot) };
    // SAFETY: both are one pointer wide (asserted above), and the caller vouches for the signature.
    unsafe { std::mem::transmute_copy(&entry) }
}

/// The implementation pointer of a public object.
///
/// # Safety
/// `object` is a live public TensorRT object of a class with an implementation pointer (all but the ONNX parser's).
pub(super) unsafe fn implementation(object: Object) -> Object {
    // SAFETY: such an object is two pointers wide and the second is the implementation.
    unsafe { *object.cast::<Object>().add(1) }
}

/// Deletes a public object through slot 1 of its own virtual table, the deleting destructor.
///
/// # Safety
/// `object` is a live public TensorRT object of a class with an implementation pointer, owned by the caller, and nothing that
/// TensorRT or we still use depends on it.
pub(super) unsafe fn delete(object: Object) {
    // SAFETY: every such class begins with its two destructors, and the caller owns the object.
    let destructor = unsafe { function_in::<Delete>(object, 1) };
    // SAFETY: as above.
    unsafe { destructor(object) }
}

/// The deleting destructor of a public object.
enum Delete {}
// SAFETY: a destructor takes `this` and returns nothing; only `delete` uses it, with its own slot.
unsafe impl Method for Delete {
    const NAME: &'static str = "~";
    const SLOTS: [i16; 5] = [1; 5];
    type Function = unsafe extern "C-unwind" fn(Object);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn number(text: &str) -> (Family, Version) {
        let (family, text) = match text.strip_prefix("rtx") {
            Some(rest) => (None, rest),
            None => (Some(()), text),
        };
        let mut parts = text.split('.').map(|part| part.parse::<u16>().unwrap());
        let version =
            Version { major: parts.next().unwrap(), minor: parts.next().unwrap(), patch: parts.next().unwrap_or(0) };
        let found = Family::of(version).unwrap();
        assert_eq!(found.flavour() == super::super::version::Flavour::Rtx, family.is_none());
        (found, version)
    }

    /// Every fact about a method in the table is what the table says, for each version in the facts, and the other way round.
    #[test]
    fn table_equals_the_facts() {
        let Some(path) = crate::test_inputs::shared("tensorrt/slots.csv") else { return };
        let text = std::fs::read_to_string(Path::new(&path)).unwrap();
        let mut facts = std::collections::BTreeMap::<(String, String), Vec<usize>>::new();
        let mut versions = std::collections::BTreeSet::new();
        for line in text.lines().skip(1) {
            let mut fields = line.splitn(5, ',');
            let mut field = || fields.next().unwrap().to_owned();
            let (version, class, slot, method) = (field(), field(), field(), field());
            let class = class.rsplit("::").next().unwrap();
            facts.entry((version.clone(), format!("{class}::{method}"))).or_default().push(slot.parse().unwrap());
            versions.insert(version);
        }
        assert!(versions.len() >= 15, "{versions:?}");
        let (mut compared, mut wrong) = (0, vec![]);
        for text in &versions {
            let (family, version) = number(text);
            let mut ours = std::collections::BTreeMap::<&str, Vec<usize>>::new();
            for (name, slots) in ALL {
                ours.entry(name).or_default().extend(slot_of(slots, family, version));
            }
            for (name, ours) in ours {
                let parser_unknown = name.starts_with("IParser") && text == "10.13.3";
                let facts = facts.get(&(text.clone(), name.to_owned())).cloned().unwrap_or_default();
                let same = match ours.as_slice() {
                    [] => facts.is_empty(),
                    [slot] => facts.contains(slot),
                    _ => false,
                };
                compared += 1;
                if !same && !parser_unknown {
                    wrong.push(format!("{text} {name}: table {ours:?}, facts {facts:?}"));
                }
            }
        }
        assert!(compared > 1000);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn appended_slots_are_gated_by_minor_version() {
        let version = |minor| Version { major: 10, minor, patch: 0 };
        let slots = CudaEngineGetDeviceMemorySizeV2::SLOTS;
        assert_eq!(slot_of(&slots, Family::TensorRt10, version(0)), None);
        assert_eq!(slot_of(&slots, Family::TensorRt10, version(3)), Some(52));
        assert_eq!(slot_of(&slots, Family::TensorRt8, Version { major: 8, minor: 6, patch: 1 }), None);
    }
}
