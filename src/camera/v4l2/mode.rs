//! Chooses format, size and rate among those that a camera offers. Pure functions; the device is asked in `mod.rs`.

use crate::camera::request::CameraFormat;
use crate::error::{Error, Result};
use crate::ffi::v4l2::{FourCc, Interval, OfferedRate, OfferedSize};
use crate::units::SizePx;

/// A format that a camera offers, with its sizes and the rates at the wanted size.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Offer {
    pub(super) format: CameraFormat,
    pub(super) fourcc: FourCc,
    /// Empty when the driver does not list them.
    pub(super) sizes: Vec<OfferedSize>,
    /// At the wanted size; empty when the driver does not list them.
    pub(super) rates: Vec<OfferedRate>,
}

/// Up to this size uncompressed pictures fit USB 2 at full rate.
const UNCOMPRESSED_PIXELS: usize = 640 * 480;

/// The format of a pixel code, where it can be read here.
pub(super) fn known(fourcc: FourCc) -> Option<CameraFormat> {
    Some(match &fourcc.0.to_le_bytes() {
        b"MJPG" | b"JPEG" => CameraFormat::Mjpg,
        b"YUYV" => CameraFormat::Yuyv,
        b"UYVY" => CameraFormat::Uyvy,
        b"NV12" => CameraFormat::Nv12,
        b"GREY" => CameraFormat::Grey,
        _ => return None,
    })
}

/// Whether a pixel code is a raw sensor mosaic.
pub(super) fn is_bayer(fourcc: FourCc) -> bool {
    match &fourcc.0.to_le_bytes() {
        b"BA81" | b"GBRG" | b"GRBG" | b"RGGB" | b"BYR2" => true,
        [first, second, b'1', b'0' | b'2' | b'4' | b'6'] => {
            matches!(&[*first, *second], b"BG" | b"GB" | b"BA" | b"GR" | b"RG")
        }
        [packing, b'B' | b'G' | b'g' | b'R', b'A' | b'C' | b'E', _] => matches!(packing, b'a' | b'b' | b'p'),
        _ => false,
    }
}

/// The best offer for `size` and `rate_fps`, or the one asked for by `format`.
///
/// # Errors
/// [`crate::ErrorKind::Source`] when nothing readable is offered, or not what is asked for.
pub(super) fn choose(
    offers: &[Offer],
    others: &[FourCc],
    format: Option<CameraFormat>,
    size: SizePx,
    rate_fps: Option<f64>,
) -> Result<Offer> {
    if offers.is_empty() {
        return Err(nothing_readable(others));
    }
    let mut left: Vec<&Offer> = offers.iter().collect();
    if let Some(format) = format {
        left.retain(|offer| offer.format == format);
        if left.is_empty() {
            return Err(Error::source_failed(format!(
                "found the pixel formats {}, expected {format}",
                list(offers.iter().map(|offer| offer.format))
            )));
        }
    }
    let of_size: Vec<&Offer> = left.iter().copied().filter(|offer| has_size(&offer.sizes, size)).collect();
    if of_size.is_empty() {
        return Err(Error::source_failed(format!("the camera does not offer {size} px"))
            .hint(format!("it offers {}", list(left.iter().map(|offer| sizes_text(offer))))));
    }
    let fast: Vec<&Offer> = match rate_fps {
        Some(rate_fps) => of_size.iter().copied().filter(|offer| has_rate(&offer.rates, rate_fps)).collect(),
        None => of_size.clone(),
    };
    if fast.is_empty() {
        return Err(Error::source_failed(format!(
            "the camera does not offer {} frames/s at {size} px",
            rate_fps.unwrap_or_default()
        ))
        .hint(format!("it offers {}", list(of_size.iter().map(|offer| rates_text(offer))))));
    }
    let prefers_jpeg = size.pixels() > UNCOMPRESSED_PIXELS;
    let rank = |offer: &&&Offer| {
        let order = CameraFormat::ALL.iter().position(|&format| format == offer.format);
        (prefers_jpeg && offer.format != CameraFormat::Mjpg, order)
    };
    match fast.iter().min_by_key(rank) {
        Some(&best) => Ok(best.clone()),
        None => Err(Error::unexpected("no camera mode is left")),
    }
}

fn nothing_readable(others: &[FourCc]) -> Error {
    let found = list(others.iter());
    if others.iter().any(|&fourcc| is_bayer(fourcc)) {
        return Error::source_failed(format!(
            "found raw Bayer pictures ({found}), expected MJPG, YUYV, UYVY, NV12 or GREY"
        ))
        .hint("a raw sensor needs the image signal processor: the way is the CSI source, which gives NV12");
    }
    let found = if others.is_empty() { "no pixel format".to_owned() } else { format!("the pixel formats {found}") };
    Error::source_failed(format!("found {found}, expected MJPG, YUYV, UYVY, NV12 or GREY"))
}

fn has_size(sizes: &[OfferedSize], wanted: SizePx) -> bool {
    let in_range = |value: u32, least: u32, most: u32, step: u32| {
        value >= least && value <= most && (value - least).is_multiple_of(step)
    };
    sizes.is_empty()
        || sizes.iter().any(|size| match *size {
            OfferedSize::Exactly(size) => size == wanted,
            OfferedSize::Range { least, most, step } => {
                in_range(wanted.width_px, least.width_px, most.width_px, step.width_px)
                    && in_range(wanted.height_px, least.height_px, most.height_px, step.height_px)
            }
        })
}

fn has_rate(rates: &[OfferedRate], wanted_fps: f64) -> bool {
    rates.is_empty()
        || rates.iter().any(|rate| match *rate {
            OfferedRate::Exactly(rate_fps) => is_near(rate_fps, wanted_fps),
            OfferedRate::Between(least, most) => wanted_fps >= least * 0.99 && wanted_fps <= most * 1.01,
        })
}

/// Rates within 1 % count as equal: 29.97 is 30.
pub(super) fn is_near(found_fps: f64, wanted_fps: f64) -> bool {
    (found_fps - wanted_fps).abs() <= wanted_fps * 0.01
}

/// The interval of a rate, s.
pub(super) fn interval(rate_fps: f64) -> Interval {
    let rounded = rate_fps.round();
    if (rate_fps - rounded).abs() < 1e-9 && rounded >= 1.0 {
        return Interval { numerator: 1, denominator: crate::units::round_px(rounded) };
    }
    Interval { numerator: 1000, denominator: crate::units::round_px(rate_fps * 1000.0) }
}

fn list<T: std::fmt::Display>(items: impl Iterator<Item = T>) -> String {
    let mut texts: Vec<String> = items.map(|item| item.to_string()).collect();
    texts.dedup();
    texts.join(", ")
}

fn sizes_text(offer: &Offer) -> String {
    let sizes = list(offer.sizes.iter().map(|size| match size {
        OfferedSize::Exactly(size) => size.to_string(),
        OfferedSize::Range { least, most, step } => {
            format!("{least} to {most} in steps of {step}")
        }
    }));
    format!("{}: {sizes}", offer.format)
}

fn rates_text(offer: &Offer) -> String {
    let rates = list(offer.rates.iter().map(|rate| match rate {
        OfferedRate::Exactly(rate_fps) => {
            format!("{rate_fps:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        OfferedRate::Between(least, most) => format!("{least:.1} to {most:.1}"),
    }));
    format!("{}: {rates} frames/s", offer.format)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(format: CameraFormat, sizes: &[(u32, u32)], rates: &[f64]) -> Offer {
        Offer {
            format,
            fourcc: FourCc(0),
            sizes: sizes.iter().map(|&(width, height)| OfferedSize::Exactly(SizePx::new(width, height))).collect(),
            rates: rates.iter().map(|&rate| OfferedRate::Exactly(rate)).collect(),
        }
    }

    fn chosen(offers: &[Offer], size: (u32, u32), rate_fps: Option<f64>) -> CameraFormat {
        choose(offers, &[], None, SizePx::new(size.0, size.1), rate_fps).unwrap().format
    }

    #[test]
    fn mjpg_above_vga_and_where_the_rate_needs_it() {
        let sizes = [(640, 480), (1920, 1080)];
        let offers = [offer(CameraFormat::Yuyv, &sizes, &[5.0]), offer(CameraFormat::Mjpg, &sizes, &[30.0, 5.0])];
        assert_eq!(chosen(&offers, (640, 480), None), CameraFormat::Yuyv);
        assert_eq!(chosen(&offers, (640, 480), Some(29.97)), CameraFormat::Mjpg);
        assert_eq!(chosen(&offers, (1920, 1080), None), CameraFormat::Mjpg);
        let only = [offer(CameraFormat::Yuyv, &sizes, &[5.0])];
        assert_eq!(chosen(&only, (1920, 1080), None), CameraFormat::Yuyv);
    }

    #[test]
    fn what_is_not_offered_is_an_error_that_lists_what_is() {
        let offers = [offer(CameraFormat::Yuyv, &[(640, 480)], &[30.0, 15.0])];
        let size = SizePx::new(640, 480);
        let error = choose(&offers, &[], Some(CameraFormat::Mjpg), size, None).unwrap_err();
        assert!(error.message().contains("found the pixel formats yuyv, expected mjpg"), "{error}");
        let error = choose(&offers, &[], None, SizePx::new(800, 600), None).unwrap_err();
        assert_eq!(error.hint_text(), Some("it offers yuyv: 640×480"));
        let error = choose(&offers, &[], None, size, Some(60.0)).unwrap_err();
        assert_eq!(error.hint_text(), Some("it offers yuyv: 30, 15 frames/s"));
    }

    #[test]
    fn bayer_is_explained() {
        for code in [b"RGGB", b"BA81", b"RG10", b"pBAA", b"BG12", b"BYR2", b"pgCC"] {
            let error = choose(&[], &[FourCc::new(code)], None, SizePx::new(8, 8), None).unwrap_err();
            assert!(error.hint_text().unwrap().contains("CSI"), "{error}");
        }
        for code in [b"H264", b"RGB3", b"BGR3", b"YU12", b"GREY"] {
            assert!(!is_bayer(FourCc::new(code)), "{}", FourCc::new(code));
        }
        assert!(choose(&[], &[], None, SizePx::new(8, 8), None).unwrap_err().message().contains("no pixel format"));
    }

    #[test]
    fn ranges_hold_steps() {
        let range =
            [OfferedSize::Range { least: SizePx::new(16, 16), most: SizePx::new(640, 480), step: SizePx::new(8, 2) }];
        assert!(has_size(&range, SizePx::new(24, 18)));
        assert!(!has_size(&range, SizePx::new(25, 18)) && !has_size(&range, SizePx::new(648, 18)));
        assert!(has_size(&[], SizePx::new(1, 1)));
    }

    #[test]
    fn intervals_of_whole_and_broken_rates() {
        assert_eq!(interval(30.0), Interval { numerator: 1, denominator: 30 });
        assert_eq!(interval(7.5), Interval { numerator: 1000, denominator: 7500 });
        assert_eq!(interval(0.5), Interval { numerator: 1000, denominator: 500 });
    }
}
