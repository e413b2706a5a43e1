//! Frames into slots of a lane.

use crate::engine::Letterbox;
use crate::engine::letterbox::{Filler, Scaling};
use crate::error::Result;
use crate::ffi::lane::{Head, Lane, PictureFormat, ScaleMode, StagedPicture, Weight};
use crate::frame::{Picture, PixelFormat};
use crate::units::{SizePx, count32, index};

/// Puts pictures into slots; keeps the weights of the last geometry and the buffer of the fallback.
#[derive(Debug)]
pub(super) struct Stager {
    geometry: Option<Letterbox>,
    mode: ScaleMode,
    columns: Vec<Weight>,
    rows: Vec<Weight>,
    filler: Filler,
    planes: Vec<u8>,
    said_large: bool,
}

impl Stager {
    pub(super) fn new() -> Stager {
        Stager {
            geometry: None,
            mode: ScaleMode::Copy,
            columns: vec![],
            rows: vec![],
            filler: Filler::new(),
            planes: vec![],
            said_large: false,
        }
    }

    /// A stager that says nothing of large pictures.
    pub(super) fn quiet() -> Stager {
        Stager { said_large: true, ..Stager::new() }
    }

    /// Puts `picture` into `slot`. A picture beyond the planned size is letterboxed on the CPU, with the same result.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] for a picture that does not hold what it describes.
    pub(super) fn stage(&mut self, lane: &mut Lane, slot: u32, picture: &Picture) -> Result<Letterbox> {
        picture.check_whole()?;
        let shape = &lane.layout().shape;
        let letterbox = Letterbox::fit(picture.size, SizePx::new(shape.width, shape.height));
        // One byte more than the picture: NV12 of odd width may look at it.
        let wanted = picture.format.picture_bytes(picture.size, picture.stride_bytes).saturating_add(1);
        let length = wanted.min(picture.pixels.as_slice().len());
        if length > lane.layout().pixel_bytes() {
            return self.stage_letterboxed(lane, slot, picture, letterbox);
        }
        self.fit(&letterbox);
        let head = Head {
            format: format_of(picture.format),
            mode: self.mode,
            source_width: picture.size.width_px,
            source_height: picture.size.height_px,
            stride: count32(picture.stride_bytes),
            length: count32(length),
            scaled_width: letterbox.scaled.width_px,
            scaled_height: letterbox.scaled.height_px,
            pad_left: letterbox.pad_left_px,
            pad_top: letterbox.pad_top_px,
        };
        let pixels = &picture.pixels.as_slice()[..length];
        lane.stage(slot, Some(&StagedPicture { head, columns: &self.columns, rows: &self.rows, pixels }))?;
        Ok(letterbox)
    }

    fn fit(&mut self, letterbox: &Letterbox) {
        if self.geometry.as_ref() == Some(letterbox) {
            return;
        }
        let weights = |parts: Vec<(u32, u32, i16, i16)>| {
            let weight =
                |(first, second, first_share, second_share)| Weight { first, second, first_share, second_share };
            parts.into_iter().map(weight).collect()
        };
        (self.mode, self.columns, self.rows) = match Scaling::of(letterbox) {
            Scaling::Copy => (ScaleMode::Copy, vec![], vec![]),
            Scaling::Halve => (ScaleMode::Halve, vec![], vec![]),
            Scaling::Blend { columns, rows } => (ScaleMode::Blend, weights(columns), weights(rows)),
        };
        self.geometry = Some(*letterbox);
    }

    fn stage_letterboxed(
        &mut self,
        lane: &mut Lane,
        slot: u32,
        picture: &Picture,
        letterbox: Letterbox,
    ) -> Result<Letterbox> {
        let shape = lane.layout().shape.clone();
        if !self.said_large {
            self.said_large = true;
            log::warn!(
                "pictures of {} do not fit the {} bytes planned for one: they are letterboxed on the CPU",
                picture.size,
                lane.layout().pixel_bytes()
            );
        }
        self.planes.resize(index(shape.channels) * letterbox.input.pixels(), 0);
        self.filler.fill(picture, &letterbox, shape.channels, &mut self.planes)?;
        let head = Head {
            format: PictureFormat::Letterboxed,
            mode: ScaleMode::Copy,
            source_width: shape.width,
            source_height: shape.height,
            stride: shape.width,
            length: count32(self.planes.len()),
            scaled_width: shape.width,
            scaled_height: shape.height,
            pad_left: 0,
            pad_top: 0,
        };
        lane.stage(slot, Some(&StagedPicture { head, columns: &[], rows: &[], pixels: &self.planes }))?;
        Ok(letterbox)
    }
}

fn format_of(format: PixelFormat) -> PictureFormat {
    match format {
        PixelFormat::Rgb8 => PictureFormat::Rgb,
        PixelFormat::Bgr8 => PictureFormat::Bgr,
        PixelFormat::Gray8 => PictureFormat::Gray,
        PixelFormat::Nv12 => PictureFormat::Nv12,
        PixelFormat::Yuyv => PictureFormat::Yuyv,
        PixelFormat::Uyvy => PictureFormat::Uyvy,
    }
}
