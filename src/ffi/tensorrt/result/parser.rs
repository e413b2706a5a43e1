//! The ONNX parser, whose objects are called directly.

use super::super::abi::{Raw, call};
use super::super::sys;
use super::{Parser, ParserError, null, text_of};
use crate::error::Result;
use std::ffi::c_void;

impl Raw<Parser> {
    pub(in super::super) unsafe fn parse(self, model: &[u8]) -> Result<bool> {
        let no_path = std::ptr::null();
        // SAFETY: the caller's; the bytes are only read during the call (the parser copies the weights).
        Ok(unsafe { call!(self, sys::ParserParse, model.as_ptr().cast::<c_void>(), model.len(), no_path) } != 0)
    }

    pub(in super::super) unsafe fn errors(self) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::ParserGetNbErrors) })
    }

    pub(in super::super) unsafe fn error(self, index: i32) -> Result<Raw<ParserError>> {
        // SAFETY: the caller's, see the module.
        let object = unsafe { call!(self, sys::ParserGetError, index) };
        Raw::new(object, self.abi()).ok_or_else(|| null("getError"))
    }

    /// Deletes the parser and the weights it holds.
    pub(in super::super) unsafe fn delete(self) -> Result<()> {
        // SAFETY: the caller's; nothing uses the parser or a network built from it afterwards.
        unsafe { call!(self, sys::ParserDelete) };
        Ok(())
    }
}

impl Raw<ParserError> {
    pub(in super::super) unsafe fn code(self) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::ParserErrorCode) })
    }

    pub(in super::super) unsafe fn description(self) -> Result<String> {
        // SAFETY: the caller's; the text belongs to the error.
        Ok(unsafe { text_of(call!(self, sys::ParserErrorDesc)) })
    }

    pub(in super::super) unsafe fn node(self) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::ParserErrorNode) })
    }

    /// Empty where the version does not know (TensorRT 8).
    pub(in super::super) unsafe fn node_name(self) -> Result<String> {
        if !self.abi().has::<sys::ParserErrorNodeName>() {
            return Ok(String::new());
        }
        // SAFETY: the caller's; the text belongs to the error.
        Ok(unsafe { text_of(call!(self, sys::ParserErrorNodeName)) })
    }

    /// Empty where the version does not know (TensorRT 8).
    pub(in super::super) unsafe fn node_operator(self) -> Result<String> {
        if !self.abi().has::<sys::ParserErrorNodeOperator>() {
            return Ok(String::new());
        }
        // SAFETY: the caller's; the text belongs to the error.
        Ok(unsafe { text_of(call!(self, sys::ParserErrorNodeOperator)) })
    }
}
