//! From a prepared graph to what the target runs, and to an engine that can answer for it.

use crate::engine::cpu::CpuOptions;
use crate::error::{Error, Result};
use crate::platform::{Platform, PlatformKind};

/// How the graph becomes an engine on the target.
#[derive(Debug, Clone)]
pub enum Compiler {
    /// The CPU engine runs the graph as it is: nothing to compile.
    Cpu(CpuOptions),
}

impl Compiler {
    /// The compiler for `platform`, or the reason why there is none: asked before any work is done.
    ///
    /// # Errors
    /// [`crate::ErrorKind::MachineLacks`] for a platform whose engines this program cannot make on this machine.
    pub fn for_platform(platform: &Platform, cpu: CpuOptions) -> Result<Compiler> {
        match platform.kind {
            PlatformKind::Cpu => Ok(Compiler::Cpu(cpu)),
            PlatformKind::Discrete | PlatformKind::Unified => Err(Error::machine_lacks(format!(
                "target `{}` needs a TensorRT engine, and this version of edge-build cannot make one yet",
                platform.name
            ))
            .hint(format!(
                "`--target cpu` makes a bundle that runs on the CPU of any machine; {} can follow later",
                platform.title
            ))),
        }
    }

    /// TensorRT family, or `cpu`, as the manifest states it.
    pub fn flavour(&self) -> &'static str {
        match self {
            Compiler::Cpu(_) => "cpu",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn gpu_targets_are_refused_with_the_reason_until_they_work() {
        for platform in Platform::all().unwrap() {
            let result = Compiler::for_platform(&platform, CpuOptions::default());
            match platform.kind {
                PlatformKind::Cpu => assert_eq!(result.unwrap().flavour(), "cpu"),
                _ => assert_eq!(result.unwrap_err().kind(), ErrorKind::MachineLacks, "{}", platform.name),
            }
        }
    }
}
