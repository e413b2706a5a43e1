//! The outlines of the parts as signed distances, and their surfaces. Units: pixels of a 384 pixel high picture,
//! measured from the middle of the part.

use super::random::{Random, plane_noise};

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A black rubber ring with two ears.
    Gasket,
    /// A bent sheet of galvanised steel with holes.
    Bracket,
    /// A blue anodised plate with a bore, four screws and a code.
    Plate,
}

/// No part reaches further from its middle than this.
pub(super) const REACH: f32 = 112.0;

/// Where the screws of a plate sit.
pub(super) const SCREWS: [(f32, f32); 4] = [(-64.0, -38.0), (64.0, -38.0), (-64.0, 38.0), (64.0, 38.0)];

/// Radius of a screw's head.
pub(super) const SCREW_HEAD: f32 = 12.0;

impl Kind {
    /// Index into [`super::CLASSES`].
    pub(super) fn class_id(self) -> u32 {
        match self {
            Kind::Gasket => 0,
            Kind::Bracket => 1,
            Kind::Plate => 2,
        }
    }

    /// Distance to the outline: negative in the material.
    pub(super) fn distance(self, x: f32, y: f32) -> f32 {
        match self {
            Kind::Gasket => {
                let ears = disc(x - 70.0, y, 23.0).min(disc(x + 70.0, y, 23.0));
                let outer = smooth_union(disc(x, y, 62.0), ears, 16.0);
                let holes = disc(x, y, 37.0).min(disc(x - 73.0, y, 8.0)).min(disc(x + 73.0, y, 8.0));
                outer.max(-holes)
            }
            Kind::Bracket => {
                let upright = rounded(x + 44.0, y, 31.0, 70.0, 9.0);
                let foot = rounded(x - 2.0, y - 42.0, 77.0, 28.0, 9.0);
                let holes = disc(x + 44.0, y + 42.0, 11.0)
                    .min(disc(x + 44.0, y + 4.0, 7.0))
                    .min(rounded(x - 30.0, y - 42.0, 20.0, 7.5, 7.5))
                    .min(disc(x + 44.0, y - 42.0, 7.0));
                smooth_union(upright, foot, 10.0).max(-holes)
            }
            Kind::Plate => rounded(x, y, 85.0, 58.0, 11.0).max(-disc(x, y, 21.0)),
        }
    }

    /// Colour of the surface, 0 to 255 a channel, before light and defects.
    pub(super) fn surface(self, x: f32, y: f32, look: &Look) -> [f32; 3] {
        let fine = plane_noise(x * 0.9, y * 0.9, look.seed);
        match self {
            Kind::Gasket => {
                let mottle = plane_noise(x * 0.06, y * 0.06, look.seed ^ 1);
                let level = 50.0 + 4.0 * fine + 5.0 * mottle + look.tone * 5.0;
                [level, level + 1.0, level + 4.0]
            }
            Kind::Bracket => {
                let brushed = plane_noise(x * 0.035, y * 1.1, look.seed ^ 2);
                let spangle = plane_noise(x * 0.11, y * 0.11, look.seed ^ 3);
                let bend = 34.0 * (-((y - 9.0) / 4.0).powi(2)).exp() - 22.0 * (-((y - 17.0) / 5.0).powi(2)).exp();
                let level = 176.0 + 8.0 * brushed + 7.0 * spangle + 3.0 * fine + look.tone * 9.0 + bend;
                [level - 3.0, level, level + 4.0]
            }
            Kind::Plate => plate_surface(x, y, fine, look),
        }
    }
}

/// What makes one part look different from the next of its kind.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// Seed of its texture.
    pub(super) seed: u64,
    /// Lighter or darker than usual, -1 to 1.
    pub(super) tone: f32,
    /// How far the cross of each screw is turned, radians.
    pub(super) screw_turns: [f32; 4],
    /// Which screw is missing.
    pub(super) missing_screw: [bool; 4],
}

impl Look {
    /// A new part's look.
    pub(super) fn new(random: &mut Random) -> Self {
        Look {
            seed: random.bits(),
            tone: random.between(-1.0, 1.0),
            screw_turns: std::array::from_fn(|_| random.between(0.0, std::f32::consts::FRAC_PI_2)),
            missing_screw: [false; 4],
        }
    }
}

fn plate_surface(x: f32, y: f32, fine: f32, look: &Look) -> [f32; 3] {
    let brushed = plane_noise(x * 0.8, y * 0.05, look.seed ^ 4);
    let level = look.tone * 6.0 + 3.5 * brushed + 2.5 * fine;
    let mut colour = [78.0 + level, 106.0 + level, 146.0 + level];
    let rim = (x * x + y * y).sqrt() - 21.0;
    if rim < 4.0 {
        let lip = 50.0 - 10.0 * rim;
        colour = colour.map(|channel| channel + lip * 0.7);
    }
    if printed_code(x, y, look.seed) {
        colour = [206.0, 210.0, 214.0];
    }
    for (index, &(screw_x, screw_y)) in SCREWS.iter().enumerate() {
        let (dx, dy) = (x - screw_x, y - screw_y);
        let radius = (dx * dx + dy * dy).sqrt();
        if radius < SCREW_HEAD + 3.0 {
            let fitted = if look.missing_screw[index] {
                empty_hole(radius, colour)
            } else {
                screw(dx, dy, radius, look.screw_turns[index], colour)
            };
            colour = fitted;
        }
    }
    colour
}

fn screw(dx: f32, dy: f32, radius: f32, turn: f32, ground: [f32; 3]) -> [f32; 3] {
    if radius > SCREW_HEAD {
        let shade = 1.0 - 0.4 * (1.0 - (radius - SCREW_HEAD) / 3.0);
        return ground.map(|channel| channel * shade);
    }
    let (sin, cos) = turn.sin_cos();
    let (along, across) = (dx * cos + dy * sin, -dx * sin + dy * cos);
    let cross = (along.abs() < 7.5 && across.abs() < 1.8) || (across.abs() < 7.5 && along.abs() < 1.8);
    if cross {
        return [44.0, 44.0, 48.0];
    }
    let dome = -(dx + dy) / SCREW_HEAD * 22.0;
    let edge = if radius > SCREW_HEAD - 2.0 { -26.0 } else { 0.0 };
    let level = 190.0 + dome + edge;
    [level, level, level + 3.0]
}

fn empty_hole(radius: f32, ground: [f32; 3]) -> [f32; 3] {
    match radius {
        radius if radius < 6.5 => [22.0, 22.0, 25.0],
        radius if radius < 9.0 => [120.0, 124.0, 130.0],
        _ => ground,
    }
}

/// A square code as a laser marks it, eight by eight cells of three pixels, right of the bore.
fn printed_code(x: f32, y: f32, seed: u64) -> bool {
    let (column, row) = ((x - 30.0) / 3.0, (y + 12.0) / 3.0);
    if !(0.0..8.0).contains(&column) || !(0.0..8.0).contains(&row) {
        return false;
    }
    let (column, row) = (column as u64, row as u64);
    column == 0 || row == 7 || (seed >> (row * 8 + column)) & 1 == 1
}

fn disc(x: f32, y: f32, radius: f32) -> f32 {
    (x * x + y * y).sqrt() - radius
}

fn rounded(x: f32, y: f32, half_width: f32, half_height: f32, radius: f32) -> f32 {
    let (dx, dy) = (x.abs() - half_width + radius, y.abs() - half_height + radius);
    let outside = (dx.max(0.0).powi(2) + dy.max(0.0).powi(2)).sqrt();
    outside + dx.max(dy).min(0.0) - radius
}

fn smooth_union(a: f32, b: f32, width: f32) -> f32 {
    let mix = (0.5 + 0.5 * (b - a) / width).clamp(0.0, 1.0);
    b + (a - b) * mix - width * mix * (1.0 - mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_leaves_its_reach() {
        for kind in [Kind::Gasket, Kind::Bracket, Kind::Plate] {
            for step in 0..360 {
                let (sin, cos) = (step as f32).to_radians().sin_cos();
                assert!(kind.distance(REACH * cos, REACH * sin) > 1.0, "{kind:?} at {step}°");
            }
        }
    }
}
