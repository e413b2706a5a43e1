//! A look at tensors inside a network: the ranges that calibration needs.

use super::{CpuOptions, InputBuffer, Network, Order, declared, open_network, threads};
use crate::engine::candidates::RawTensor;
use crate::engine::letterbox::Filler;
use crate::engine::{InputSpec, Layout, Letterbox};
use crate::error::Result;
use crate::frame::Picture;
use crate::onnx::{Model, edit};
use crate::units::index;

/// A network whose inner tensors can be seen. Pictures go in through the very preprocessing of a run.
pub struct Probe {
    network: Box<dyn Network>,
    buffer: InputBuffer,
    filler: Filler,
    input: InputSpec,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Probe of `{}` in {}", self.input.name, self.network.backend())
    }
}

impl Probe {
    /// Loads `model` so that the tensors `names` can be seen; they become its outputs, in this order.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for a name that no operator makes, else those of [`super::load`].
    pub fn open(
        mut model: Model,
        names: &[String],
        input: &InputSpec,
        layout: &Layout,
        options: &CpuOptions,
    ) -> Result<Probe> {
        edit::keep_outputs(&mut model, names)?;
        let bytes = model.to_bytes()?;
        let threads = options.threads.unwrap_or_else(threads::physical_cores).max(1);
        let order = Order { model: &bytes, input, layout, outputs: names.to_vec(), threads };
        let network = open_network(order, options.backend)?;
        let buffer = InputBuffer::new(network.input_element(), declared::input_elements(input));
        Ok(Probe { network, buffer, filler: Filler::new(), input: input.clone() })
    }

    /// Runs one picture, in every place of the batch, and shows the tensors, in the order of their names.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] for a damaged picture, [`crate::ErrorKind::Device`] when the run failed, and what
    /// `visit` gives.
    pub fn run(&mut self, picture: &Picture, visit: &mut dyn FnMut(&[RawTensor<'_>]) -> Result<()>) -> Result<()> {
        self.run_all(std::slice::from_ref(picture), visit)
    }

    /// Runs pictures together, one in each place of the batch; where they are fewer they come again. No place is empty: what a
    /// network makes of an empty one says nothing about pictures.
    ///
    /// # Errors
    /// As [`Probe::run`].
    pub fn run_all(
        &mut self,
        pictures: &[Picture],
        visit: &mut dyn FnMut(&[RawTensor<'_>]) -> Result<()>,
    ) -> Result<()> {
        for (place, picture) in (0..self.places()).zip(pictures.iter().cycle()) {
            let letterbox = Letterbox::fit(picture.size, self.input.size);
            self.buffer.fill(&mut self.filler, picture, &letterbox, self.input.channels, place)?;
        }
        self.network.run(&self.buffer, visit)
    }

    /// Pictures that run together.
    pub fn places(&self) -> usize {
        index(self.input.batch).max(1)
    }
}
