//! Foreign calls: the only folder with `unsafe`. Every block names its condition and who ensures it.
//!
//! | module | talks to | found |
//! | --- | --- | --- |
//! | [`cuda`] | the CUDA driver | at run time, probed before the first call |
//! | [`lane`] | the project's own kernels beside TensorRT | compiled in as PTX |
//! | [`nvml`] | NVIDIA's management library: heat, clocks, memory errors | at run time, where a driver brings it |
//! | [`onnxruntime`] | ONNX Runtime | at run time |
//! | [`process`] | the end of the process past the exit handlers of libraries | always there |
//! | [`signal`] | the kernel: SIGHUP | always there |
//! | [`storage`] | the file system: free space | always there |
//! | [`tensorrt`] | TensorRT 8.5 to 11 and TensorRT-RTX, through hand-declared virtual tables | at run time, table chosen by version |
//! | [`thread`] | the kernel: how important a thread is | always there |
//! | [`v4l2`] | cameras through Video4Linux2 | device nodes |

pub mod cuda;
pub mod lane;
pub mod nvml;
pub mod onnxruntime;
pub mod process;
pub mod signal;
pub mod storage;
pub mod tensorrt;
pub mod thread;
pub mod v4l2;
