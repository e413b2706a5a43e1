//! Random numbers that repeat exactly: the same seed gives the same line on every run.

/// SplitMix64: small, fast, good enough for pictures.
#[derive(Debug, Clone)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// A stream of numbers for `seed` and a purpose, so that two uses of one seed differ.
    pub(super) fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Random { state: seed ^ purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15) };
        random.bits();
        random
    }

    /// 64 random bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// Even in 0..1.
    pub(super) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Even in `low..high`.
    pub(super) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// Even in `0..length`; 0 for an empty range.
    pub(super) fn index(&mut self, length: usize) -> usize {
        if length == 0 { 0 } else { (self.bits() >> 16) as usize % length }
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, probability: f32) -> bool {
        self.unit() < probability
    }

    /// -1 or 1.
    pub(super) fn sign(&mut self) -> f32 {
        if self.chance(0.5) { 1.0 } else { -1.0 }
    }

    /// Standard normal.
    pub(super) fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.unit()).max(1e-9).ln()).sqrt();
        radius * (std::f32::consts::TAU * self.unit()).cos()
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Smooth noise in -1..1 over the plane; features are about one unit wide.
pub(super) fn plane_noise(x: f32, y: f32, seed: u64) -> f32 {
    let (column, row) = (x.floor(), y.floor());
    let (along, down) = (smooth(x - column), smooth(y - row));
    let corner = |dx: i64, dy: i64| lattice(column as i64 + dx, row as i64 + dy, seed);
    let top = corner(0, 0) + (corner(1, 0) - corner(0, 0)) * along;
    let bottom = corner(0, 1) + (corner(1, 1) - corner(0, 1)) * along;
    top + (bottom - top) * down
}

/// As [`plane_noise`], repeating every `period` units in x.
pub(super) fn wrapped_noise(x: f32, y: f32, period: i64, seed: u64) -> f32 {
    let (column, row) = (x.floor(), y.floor());
    let (along, down) = (smooth(x - column), smooth(y - row));
    let corner = |dx: i64, dy: i64| lattice((column as i64 + dx).rem_euclid(period.max(1)), row as i64 + dy, seed);
    let top = corner(0, 0) + (corner(1, 0) - corner(0, 0)) * along;
    let bottom = corner(0, 1) + (corner(1, 1) - corner(0, 1)) * along;
    top + (bottom - top) * down
}

fn smooth(t: f32) -> f32 {
    t * t * (3.0 - 2.0 * t)
}

fn lattice(column: i64, row: i64, seed: u64) -> f32 {
    let bits = mix(seed
        .wrapping_add((column as u64).wrapping_mul(0x8CB9_2BA7_2F3D_8DD7))
        .wrapping_add((row as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93)));
    (bits >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}
