//! A picture of two frames: one part is what the frame before held, byte for byte, or was never filled.
//!
//! A live sensor's noise changes every band of every picture, so equal bytes in some bands and other bytes in the rest mean
//! that a buffer was read while it was written. The check speaks only after it has seen that noise in every band for a
//! while; cameras that deliver noise-free still scenes never arm it. It compares with the frame before on this stream: a
//! stale part of a frame that was dropped is not recognised.

use super::{About, Advice, Check, NOT_LIVE, SetUp, Setup, Streak, UNRELATED};
use crate::error::Result;
use crate::guard::picture::BANDS;
use crate::guard::{Observation, Reason, Severity, Side};
use crate::units::length;

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::Torn,
    severity: Severity::Hard,
    side: Side::Picture,
    compares: "each of 32 horizontal bands with the same band of the frame before: some equal to the byte or blank, the others new",
    limits: &["torn_share", "torn_arming_frames"],
    off_when: "the source is not live, the pictures do not follow each other, or the camera shows no noise",
    english: Advice {
        seen: "The picture consists of two pictures.",
        what_to_do: "Check the camera's cable and USB bandwidth; it is opened again by itself.",
    },
    chinese: Advice {
        seen: "图像由两帧拼接而成。",
        what_to_do: "请检查相机连接线和 USB 带宽；程序会自动重新打开相机。",
    },
};

#[derive(Debug)]
struct Torn {
    bands: f64,
    armed: Streak,
    before: Option<[u64; BANDS]>,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    if !setup.traits.live {
        return SetUp::off(NOT_LIVE);
    }
    if !setup.traits.related_frames {
        return SetUp::off(UNRELATED);
    }
    let bands = setup.limits.torn_share * length(BANDS);
    SetUp::on(Torn { bands, armed: Streak::of(setup.limits.torn_arming_frames), before: None })
}

impl Check for Torn {
    fn reason(&self) -> Reason {
        Reason::Torn
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        let Some(stats) = seen.stats() else { return false };
        let before = self.before.replace(stats.band_hashes);
        let Some(before) = before else { return false };
        let stale = (0..BANDS)
            .filter(|&band| before[band] == stats.band_hashes[band])
            .fold(0_u32, |bits, band| bits | 1 << band);
        let spoilt = stale | stats.flat_bands;
        if spoilt == 0 {
            self.armed.count(true);
            return false;
        }
        let was_armed = crate::units::float64(self.armed.frames) >= self.armed.needed;
        let torn = was_armed && is_one_end(spoilt) && f64::from(spoilt.count_ones()) >= self.bands;
        if !torn {
            self.armed.count(false);
        }
        torn
    }
}

/// Whether the bands form one block at the top or at the bottom, and are not all of them.
fn is_one_end(bands: u32) -> bool {
    bands != u32::MAX && (bands.leading_ones() == bands.count_ones() || bands.trailing_ones() == bands.count_ones())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, live};

    fn armed() -> crate::guard::fixture::Stream {
        let mut stream = Scene::with_reference().stream(live());
        for _ in 0..102 {
            assert_eq!(stream.clean().trust, Trust::Trusted);
        }
        stream
    }

    #[test]
    fn a_stale_or_blank_end_is_a_fault_and_the_next_whole_frame_clears_it() {
        for blank in [None, Some(0), Some(128)] {
            for (from_row, to_row) in [(240, 480), (0, 240), (400, 480)] {
                let mut stream = armed();
                let before = stream.last_picture();
                let verdict = stream.see(|frame| frame.overwrite_rows(from_row..to_row, &before, blank));
                assert_eq!(verdict.trust, Trust::Fault);
                assert!(verdict.reasons.contains(&Reason::Torn), "{blank:?} {from_row} {verdict:?}");
                assert_eq!(stream.clean().trust, Trust::Trusted);
            }
        }
    }

    #[test]
    fn every_torn_frame_in_a_row_is_a_fault() {
        let mut stream = armed();
        for _ in 0..5 {
            let before = stream.last_picture();
            let verdict = stream.see(|frame| frame.overwrite_rows(240..480, &before, None));
            assert!(verdict.reasons.contains(&Reason::Torn));
            stream.clean();
        }
    }

    #[test]
    fn a_camera_without_noise_never_arms_it() {
        let mut stream = Scene::with_reference().stream(live());
        let still = stream.last_picture();
        for number in 0..300 {
            let verdict = stream.see(|frame| {
                if number % 3 > 0 {
                    frame.overwrite_rows(240..480, &still, None);
                }
            });
            assert!(!verdict.reasons.contains(&Reason::Torn));
        }
    }

    #[test]
    fn a_whole_frozen_picture_is_not_torn() {
        let mut stream = armed();
        let before = stream.last_picture();
        let verdict = stream.see(|frame| frame.overwrite_rows(0..480, &before, None));
        assert!(!verdict.reasons.contains(&Reason::Torn));
    }

    #[test]
    fn ends_are_told_from_middles() {
        assert!(is_one_end(0xffff_0000) && is_one_end(0x0000_00ff));
        assert!(!is_one_end(0x00ff_0000) && !is_one_end(u32::MAX) && !is_one_end(0xf000_000f));
    }
}
