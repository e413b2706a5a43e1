//! Enum values. Most are the same in every family; builder flags and network flags were renumbered between majors, where a
//! right slot with a wrong number fails silently.

use super::super::version::Family;

/// `MemoryPoolType::kWORKSPACE`.
pub(in super::super) const MEMORY_POOL_WORKSPACE: i32 = 0;
/// `LayerInformationFormat::kJSON`.
pub(in super::super) const LAYER_INFORMATION_JSON: i32 = 1;
/// `TensorIOMode::kINPUT`.
pub(in super::super) const TENSOR_IO_INPUT: i32 = 1;
/// `TensorIOMode::kOUTPUT`.
pub(in super::super) const TENSOR_IO_OUTPUT: i32 = 2;
/// `ExecutionContextAllocationStrategy::kUSER_MANAGED`; TensorRT 8 has a method of its own instead.
pub(in super::super) const CONTEXT_MEMORY_USER_MANAGED: i32 = 2;
/// `EngineValidity::kVALID` and `kSUBOPTIMAL`; higher values are invalid.
pub(in super::super) const ENGINE_SUBOPTIMAL: i32 = 1;

/// `BuilderFlag` values that are set on TensorRT 8, where precision is not in the graph's types alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum BuilderFlag {
    /// `kFP16`.
    Fp16,
    /// `kINT8`.
    Int8,
    /// `kOBEY_PRECISION_CONSTRAINTS`.
    ObeyPrecisionConstraints,
}

impl BuilderFlag {
    /// The value in a family; `None` where the flag is gone (networks are always strongly typed there).
    pub(in super::super) fn value(self, family: Family) -> Option<i32> {
        match (self, family) {
            (_, Family::TensorRt11 | Family::Rtx15) => None,
            (BuilderFlag::Fp16, _) => Some(0),
            (BuilderFlag::Int8, _) => Some(1),
            (BuilderFlag::ObeyPrecisionConstraints, Family::TensorRt8) => Some(10),
            (BuilderFlag::ObeyPrecisionConstraints, Family::TensorRt10 | Family::Rtx13) => Some(9),
        }
    }
}

/// Bits for `createNetworkV2`: explicit batch on TensorRT 8 (required there), strongly typed everywhere else.
pub(in super::super) fn network_flags(family: Family) -> u32 {
    match family {
        Family::TensorRt8 => 1 << 0,
        Family::TensorRt10 | Family::Rtx13 => 1 << 1,
        Family::TensorRt11 | Family::Rtx15 => 1 << 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_moved_have_the_number_of_their_family() {
        let obey = |family| BuilderFlag::ObeyPrecisionConstraints.value(family);
        assert_eq!(Family::ALL.map(obey), [Some(10), Some(9), None, Some(9), None]);
        let fp16 = |family| BuilderFlag::Fp16.value(family);
        assert_eq!(Family::ALL.map(fp16), [Some(0), Some(0), None, Some(0), None]);
        assert_eq!(Family::ALL.map(network_flags), [1, 2, 1, 2, 1]);
    }
}
