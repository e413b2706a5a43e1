//! What the camera sees without parts: the floor, the rails with their bolts, a light barrier and the moving belt.

use super::random::{Random, plane_noise, wrapped_noise};
use crate::units::SizePx;

/// The standing scene and the belt's surface, larger than the picture by a margin, so that the camera can look aside.
#[derive(Debug)]
pub(super) struct Backdrop {
    size: SizePx,
    margin_px: i32,
    /// RGB, `(width + 2 margins) × (height + 2 margins)`.
    standing: Vec<u8>,
    /// RGB, `period × (height + 2 margins)`; rows outside the belt are unused.
    belt: Vec<u8>,
    period_px: i32,
    belt_rows: std::ops::Range<i32>,
}

const BELT_PERIOD: f32 = 1400.0;
const BELT_HALF: f32 = 140.0;

impl Backdrop {
    /// Draws the scene for a picture of `size`, at `scale` pixels a unit.
    pub(super) fn draw(size: SizePx, scale: f32, seed: u64) -> Self {
        let margin_px = (40.0 * scale).ceil() as i32;
        let (width, height) = (size.width_px as i32, size.height_px as i32);
        let (wide, high) = (width + 2 * margin_px, height + 2 * margin_px);
        let middle = margin_px + height / 2;
        let half = (BELT_HALF * scale) as i32;
        let belt_rows = middle - half..middle + half;
        let period_px = (BELT_PERIOD * scale) as i32;
        let mut standing = Vec::with_capacity((wide * high * 3) as usize);
        for row in 0..high {
            for column in 0..wide {
                let x = (column - margin_px - width / 2) as f32 / scale;
                let y = (row - middle) as f32 / scale;
                standing.extend(standing_colour(x, y, seed).map(|channel| channel.clamp(0.0, 255.0) as u8));
            }
        }
        let marks = scuffs(seed);
        let mut belt = vec![0; (period_px * high * 3) as usize];
        for row in belt_rows.clone() {
            for column in 0..period_px {
                let colour = belt_colour(column as f32 / scale, (row - middle) as f32 / scale, seed, &marks);
                let start = ((row * period_px + column) * 3) as usize;
                for (channel, value) in colour.iter().enumerate() {
                    belt[start + channel] = value.clamp(0.0, 255.0) as u8;
                }
            }
        }
        Backdrop { size, margin_px, standing, belt, period_px, belt_rows }
    }

    /// Paints the scene as seen `aside` pixels to the right and below, with the belt moved on by `travel_px`.
    pub(super) fn paint(&self, target: &mut [u8], travel_px: i64, aside: (i32, i32)) {
        let width = self.size.width_px as i32;
        let wide = width + 2 * self.margin_px;
        let (right, down) =
            (aside.0.clamp(-self.margin_px, self.margin_px), aside.1.clamp(-self.margin_px, self.margin_px));
        let first = (i64::from(right) - travel_px).rem_euclid(i64::from(self.period_px)) as usize;
        for (row, line) in target.chunks_exact_mut(width as usize * 3).enumerate() {
            let source_row = row as i32 + self.margin_px + down;
            if !self.belt_rows.contains(&source_row) {
                let start = ((source_row * wide + self.margin_px + right) * 3) as usize;
                line.copy_from_slice(&self.standing[start..start + width as usize * 3]);
                continue;
            }
            let period = self.period_px as usize;
            let belt_row = &self.belt[source_row as usize * period * 3..(source_row as usize + 1) * period * 3];
            let (mut at, mut from) = (0, first);
            while at < width as usize {
                let columns = (period - from).min(width as usize - at);
                line[at * 3..(at + columns) * 3].copy_from_slice(&belt_row[from * 3..(from + columns) * 3]);
                at += columns;
                from = 0;
            }
        }
    }
}

fn standing_colour(x: f32, y: f32, seed: u64) -> [f32; 3] {
    let beyond = y.abs() - BELT_HALF;
    let fine = plane_noise(x * 0.8, y * 0.8, seed ^ 21);
    if (-4.0..4.0).contains(&(x.abs() - 0.0)) && y < 0.0 && (6.0..34.0).contains(&beyond) {
        let lamp = (x * x + (beyond - 14.0).powi(2)).sqrt();
        return if lamp < 2.5 { [235.0, 60.0, 40.0] } else { [58.0, 56.0, 52.0] };
    }
    if (-15.0..15.0).contains(&x) && y < 0.0 && (5.0..36.0).contains(&beyond) {
        let edge = if x < -13.0 || beyond > 34.0 { 30.0 } else { 0.0 };
        return [212.0 + edge, 150.0 + edge, 26.0 + edge].map(|channel| channel + 3.0 * fine);
    }
    if beyond < 28.0 {
        let across = beyond / 28.0;
        let groove = if (0.42..0.58).contains(&across) { -62.0 } else { 0.0 };
        let round = 40.0 * (1.0 - (2.0 * across - 0.7).abs());
        let brushed = plane_noise(x * 0.012, y * 1.3, seed ^ 22);
        let level = 136.0 + round + groove + 6.0 * brushed + 2.0 * fine;
        return bolt(x, beyond, level).unwrap_or([level, level + 1.0, level + 4.0]);
    }
    let cloud = plane_noise(x * 0.02, y * 0.02, seed ^ 23);
    let level = 58.0 + 7.0 * cloud + 3.0 * fine - 16.0 * (-(beyond - 28.0) / 6.0).exp();
    [level, level, level - 2.0]
}

fn bolt(x: f32, beyond: f32, level: f32) -> Option<[f32; 3]> {
    let dx = (x + 80.0).rem_euclid(160.0) - 80.0 + 40.0;
    let radius = (dx * dx + (beyond - 14.0).powi(2)).sqrt();
    match radius {
        radius if radius < 2.6 => Some([40.0, 40.0, 44.0]),
        radius if radius < 7.0 => Some([level.max(120.0) + 36.0 - 5.0 * radius; 3]),
        radius if radius < 8.5 => Some([60.0, 60.0, 62.0]),
        _ => None,
    }
}

struct Scuff {
    x: f32,
    y: f32,
    length: f32,
    slope: f32,
    depth: f32,
}

fn scuffs(seed: u64) -> Vec<Scuff> {
    let mut random = Random::new(seed, 31);
    (0..26)
        .map(|_| Scuff {
            x: random.between(0.0, BELT_PERIOD),
            y: random.between(-120.0, 120.0),
            length: random.between(30.0, 160.0),
            slope: random.between(-0.12, 0.12),
            depth: random.between(-9.0, 7.0),
        })
        .collect()
}

fn belt_colour(x: f32, y: f32, seed: u64, scuffs: &[Scuff]) -> [f32; 3] {
    let period = BELT_PERIOD as i64;
    let weave = (x * std::f32::consts::TAU / 4.0).sin() * (y * std::f32::consts::TAU / 4.0).sin() * 2.2;
    let fine = wrapped_noise(x, y, period, seed ^ 11);
    let wear = wrapped_noise(x * 0.02, y * 0.045, period / 50, seed ^ 12);
    let mut level = 2.6 * fine + 7.0 * wear + weave;
    for scuff in scuffs {
        let along = (x - scuff.x).rem_euclid(BELT_PERIOD);
        if along < scuff.length {
            let off = (y - scuff.y - along * scuff.slope).abs();
            let ends = (along / 12.0).min((scuff.length - along) / 12.0).min(1.0);
            level += scuff.depth * ends * (1.0 - off / 2.5).max(0.0);
        }
    }
    let seam = x - 700.0 - y * 0.35;
    if seam.abs() < 3.0 {
        level -= 14.0 * (1.0 - seam.abs() / 3.0);
    }
    let edge = BELT_HALF - y.abs();
    let shade = 1.0 - 0.38 * (-edge / 9.0).exp();
    [(92.0 + level) * shade, (128.0 + level) * shade, (112.0 + level) * shade]
}
