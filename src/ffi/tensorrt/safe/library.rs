//! The opened core library and its parser.

use super::super::abi::Abi;
use super::super::callbacks;
use super::super::probe::{self, Core, ParserLibrary, Search};
use super::super::sys::Object;
use super::super::version::{Flavour, Version};
use crate::error::{Error, Result};
use crate::ffi::cuda::Driver;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// TensorRT, opened. Never unloaded.
#[derive(Debug)]
pub struct Library {
    core: Core,
    search: Search,
    parser: OnceLock<ParserLibrary>,
    driver: DriverCheck,
}

/// How it is made sure that a factory of `libnvinfer` may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DriverCheck {
    /// [`Driver::load`] must succeed first.
    Needed,
    /// TensorRT-RTX builds without a driver, and says so itself when it needs one.
    NotNeeded,
}

impl Library {
    /// Finds and opens a flavour. Calls nothing but version functions, so it is safe on a machine without a GPU.
    ///
    /// # Errors
    /// [`crate::ErrorKind::MachineLacks`], with the files tried, what was found and expected, and the way out.
    pub fn open(flavour: Flavour, search: &Search) -> Result<Arc<Library>> {
        let core = probe::core(flavour, search)?;
        let driver = if flavour.builds_without_gpu() { DriverCheck::NotNeeded } else { DriverCheck::Needed };
        log::debug!("{} {} from {}", flavour.product(), core.version, core.path.display());
        Ok(Arc::new(Library { core, search: search.clone(), parser: OnceLock::new(), driver }))
    }

    /// A library whose factories work without a driver: a double.
    #[cfg(test)]
    pub(super) fn open_without_driver(flavour: Flavour, search: &Search) -> Result<Arc<Library>> {
        let core = probe::core(flavour, search)?;
        let search = search.clone();
        Ok(Arc::new(Library { core, search, parser: OnceLock::new(), driver: DriverCheck::NotNeeded }))
    }

    /// The library's version.
    pub fn version(&self) -> Version {
        self.core.version
    }

    /// The flavour that was asked for and found.
    pub fn flavour(&self) -> Flavour {
        self.core.family.flavour()
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &Path {
        &self.core.path
    }

    /// The file of the ONNX parser, once a network was parsed.
    pub fn parser_path(&self) -> Option<&Path> {
        self.parser.get().map(|parser| parser.path.as_path())
    }

    pub(super) fn abi(&self) -> Abi {
        Abi { family: self.core.family, version: self.core.version }
    }

    /// The logger in this family's layout.
    pub(super) fn logger(&self) -> Object {
        callbacks::logger(self.core.family)
    }

    /// The parser, opened at the first call.
    pub(super) fn parser(&self) -> Result<&ParserLibrary> {
        if let Some(parser) = self.parser.get() {
            return Ok(parser);
        }
        let parser = probe::parser(&self.core, &self.search)?;
        Ok(self.parser.get_or_init(|| parser))
    }

    fn may_create(&self) -> Result<()> {
        match self.driver {
            DriverCheck::Needed => Driver::load().map(|_| ()),
            DriverCheck::NotNeeded => Ok(()),
        }
    }

    /// A new builder object, unchecked for null.
    pub(super) fn create_builder(&self) -> Result<Object> {
        let Some(create) = self.core.create_builder else {
            return Err(Error::machine_lacks(format!(
                "found {} {} without a builder, expected one",
                self.flavour().product(),
                self.core.version
            ))
            .at(self.core.path.display())
            .hint("this is the lean runtime, which only runs plans; install the whole TensorRT"));
        };
        self.may_create()?;
        // SAFETY: the logger has this family's layout and is never freed; the driver was asked first where the factory needs it.
        Ok(unsafe { create(self.logger(), self.core.version.number()) })
    }

    /// A new runtime object, unchecked for null.
    pub(super) fn create_runtime(&self) -> Result<Object> {
        self.may_create()?;
        // SAFETY: as in `create_builder`.
        Ok(unsafe { (self.core.create_runtime)(self.logger(), self.core.version.number()) })
    }

    /// The error for a self-test that failed: the table does not fit this library.
    pub(super) fn mismatch(&self, what: &str) -> Error {
        Error::machine_lacks(format!(
            "found a library of version {} whose {what} answers otherwise than that version's, expected the known layout",
            self.core.version
        ))
        .at(self.core.path.display())
        .hint("report this version; nothing further was called")
    }

    /// The error for a factory that gave nothing.
    pub(super) fn no_object(&self, what: &str) -> Error {
        Error::machine_lacks(format!("{} {} gave no {what}", self.flavour().product(), self.core.version))
            .at(self.core.path.display())
            .hint("its own messages say why: run again with `--log debug`")
    }
}
