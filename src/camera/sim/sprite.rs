//! A part as a small picture with transparency, drawn once when it enters the belt and copied into every frame.

use super::defects::{self, Defect};
use super::random::Random;
use super::shapes::{Kind, Look, REACH};
use crate::units::BoxPx;

/// A drawn part. Pixels are premultiplied; the middle of the part is the middle of the sprite.
#[derive(Debug)]
pub(super) struct Sprite {
    pub(super) side_px: i32,
    pub(super) pixels: Vec<[u8; 4]>,
    /// Where the part itself shows.
    pub(super) outline: Extent,
    /// Where its defects show, with class ids.
    pub(super) defects: Vec<(u32, Extent)>,
}

const SHADOW: (f32, f32) = (5.0, 7.0);
const LIGHT: (f32, f32) = (-0.6, -0.8);

/// Where an object shows in its sprite: for every column the topmost row and the row below the last, relative to the
/// middle of the part; columns without it are empty ranges.
#[derive(Debug)]
pub(super) struct Extent {
    half: i32,
    columns: Vec<(i32, i32)>,
}

impl Extent {
    fn new(half: i32) -> Self {
        Extent { half, columns: vec![(i32::MAX, i32::MIN); (2 * half) as usize] }
    }

    fn add(&mut self, column: i32, row: i32) {
        let rows = &mut self.columns[(column + self.half) as usize];
        *rows = (rows.0.min(row), rows.1.max(row + 1));
    }

    /// The tight box, relative to the middle of the part, of what lies in these columns.
    pub(super) fn within(&self, from: i32, to: i32) -> Option<BoxPx> {
        let shown = (from.max(-self.half)..to.min(self.half)).filter_map(|column| {
            let (top, bottom) = self.columns[(column + self.half) as usize];
            (top < bottom).then_some((column, top, bottom))
        });
        shown
            .map(|(column, top, bottom)| BoxPx::new(column as f32, top as f32, (column + 1) as f32, bottom as f32))
            .reduce(|a, b| {
                BoxPx::new(
                    a.left_px.min(b.left_px),
                    a.top_px.min(b.top_px),
                    a.right_px.max(b.right_px),
                    a.bottom_px.max(b.bottom_px),
                )
            })
    }

    /// The tight box of the whole object.
    pub(super) fn whole(&self) -> Option<BoxPx> {
        self.within(-self.half, self.half)
    }
}

impl Sprite {
    /// Draws a part of this kind, turned by `turn` radians, at `scale` pixels a unit.
    pub(super) fn draw(kind: Kind, defective: bool, turn: f32, scale: f32, random: &mut Random) -> Sprite {
        let mut look = Look::new(random);
        let defects = if defective { defects::choose(kind, turn, &mut look, random) } else { Vec::new() };
        let half = ((REACH + 10.0) * scale).ceil() as i32;
        let side = half * 2;
        let mut pixels = Vec::with_capacity((side * side) as usize);
        let mut outline = Extent::new(half);
        let mut marks: Vec<Extent> = defects.iter().map(|_| Extent::new(half)).collect();
        let (sin, cos) = turn.sin_cos();
        for row in -half..half {
            for column in -half..half {
                let (px, py) = ((column as f32 + 0.5) / scale, (row as f32 + 0.5) / scale);
                let (x, y) = (px * cos + py * sin, -px * sin + py * cos);
                let distance = kind.distance(x, y);
                let cover = (0.5 - distance * scale).clamp(0.0, 1.0);
                let shadow = shadow(kind, px, py, sin, cos);
                if cover <= 0.0 {
                    pixels.push([0, 0, 0, (shadow * 255.0) as u8]);
                    continue;
                }
                if cover > 0.5 {
                    outline.add(column, row);
                    for (defect, mark) in defects.iter().zip(&mut marks) {
                        if defect.cover(x, y) > 0.4 {
                            mark.add(column, row);
                        }
                    }
                }
                let colour = lit(kind, x, y, distance, (sin, cos), &look, &defects);
                let alpha = cover + shadow * (1.0 - cover);
                let premultiplied = |channel: f32| (channel.clamp(0.0, 255.0) * cover) as u8;
                pixels.push([
                    premultiplied(colour[0]),
                    premultiplied(colour[1]),
                    premultiplied(colour[2]),
                    (alpha * 255.0) as u8,
                ]);
            }
        }
        let defects = defects
            .iter()
            .zip(marks)
            .filter(|(_, mark)| mark.whole().is_some())
            .map(|(defect, mark)| (defect.class_id(), mark))
            .collect();
        Sprite { side_px: side, pixels, outline, defects }
    }

    /// Copies the sprite into an RGB picture so that its middle lies at `(x, y)`; what lies outside is cut.
    pub(super) fn paste(&self, target: &mut [u8], width_px: i32, height_px: i32, x: i32, y: i32) {
        let (left, top) = (x - self.side_px / 2, y - self.side_px / 2);
        let from_column = (-left).max(0);
        let to_column = (width_px - left).min(self.side_px);
        if from_column >= to_column {
            return;
        }
        for row in (-top).max(0)..(height_px - top).min(self.side_px) {
            let source = (row * self.side_px + from_column) as usize;
            let start = (((top + row) * width_px + left + from_column) * 3) as usize;
            let columns = (to_column - from_column) as usize;
            let sprite_row = &self.pixels[source..source + columns];
            for (pixel, ink) in target[start..start + columns * 3].chunks_exact_mut(3).zip(sprite_row) {
                let rest = 256 - u32::from(ink[3]) - u32::from(ink[3] >> 7);
                for channel in 0..3 {
                    let under = (u32::from(pixel[channel]) * rest) >> 8;
                    pixel[channel] = (u32::from(ink[channel]) + under).min(255) as u8;
                }
            }
        }
    }
}

fn shadow(kind: Kind, px: f32, py: f32, sin: f32, cos: f32) -> f32 {
    let (px, py) = (px - SHADOW.0, py - SHADOW.1);
    let distance = kind.distance(px * cos + py * sin, -px * sin + py * cos);
    let depth = ((5.0 - distance) / 10.0).clamp(0.0, 1.0);
    0.42 * depth * depth * (3.0 - 2.0 * depth)
}

fn lit(kind: Kind, x: f32, y: f32, distance: f32, (sin, cos): (f32, f32), look: &Look, defects: &[Defect]) -> [f32; 3] {
    let mut colour = kind.surface(x, y, look);
    for defect in defects {
        colour = defect.paint(kind, x, y, colour);
    }
    if distance > -4.5 {
        let slope_x = kind.distance(x + 0.5, y) - kind.distance(x - 0.5, y);
        let slope_y = kind.distance(x, y + 0.5) - kind.distance(x, y - 0.5);
        let (picture_x, picture_y) = (slope_x * cos - slope_y * sin, slope_x * sin + slope_y * cos);
        let facing = picture_x * LIGHT.0 + picture_y * LIGHT.1;
        let bevel = ((distance + 4.5) / 4.5).clamp(0.0, 1.0);
        let strength = if kind == Kind::Gasket { 26.0 } else { 52.0 };
        colour = colour.map(|channel| channel + facing * bevel * strength);
    }
    colour
}
