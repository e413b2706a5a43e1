//! Defects on a part: where they sit and what they do to its surface. Units as in [`super::shapes`].

use super::random::{Random, plane_noise};
use super::shapes::{Kind, Look, SCREW_HEAD, SCREWS};

/// A defect on one part, in the part's own coordinates.
#[derive(Debug, Clone)]
pub(super) enum Defect {
    /// A bright line with a dark flank.
    Scratch { points: Vec<(f32, f32)>, width: f32 },
    /// A jagged dark line from an edge inwards.
    Crack { points: Vec<(f32, f32)>, width: f32 },
    /// A spot of oil, on rubber of chalk.
    Stain { x: f32, y: f32, radius: f32, seed: u64 },
    /// A screw of a plate that is not there.
    MissingScrew { index: usize },
}

impl Defect {
    /// Index into [`super::CLASSES`].
    pub(super) fn class_id(&self) -> u32 {
        match self {
            Defect::Scratch { .. } => 3,
            Defect::Crack { .. } => 4,
            Defect::Stain { .. } => 5,
            Defect::MissingScrew { .. } => 6,
        }
    }

    /// How strongly it covers a point, 0 to 1.
    pub(super) fn cover(&self, x: f32, y: f32) -> f32 {
        match self {
            Defect::Scratch { points, width } => (width / 2.0 + 0.5 - line_distance(points, x, y).0).clamp(0.0, 1.0),
            Defect::Crack { points, width } => {
                let (distance, along) = line_distance(points, x, y);
                (width * (1.0 - 0.55 * along) / 2.0 + 0.5 - distance).clamp(0.0, 1.0)
            }
            Defect::Stain { x: middle_x, y: middle_y, radius, seed } => {
                let (dx, dy) = (x - middle_x, y - middle_y);
                let distance = (dx * dx + dy * dy).sqrt();
                let ragged = radius * (1.0 + 0.3 * plane_noise(dx * 0.13, dy * 0.13, *seed));
                ((ragged - distance) / 3.0).clamp(0.0, 1.0)
            }
            Defect::MissingScrew { index } => {
                let (screw_x, screw_y) = SCREWS[*index];
                let distance = ((x - screw_x).powi(2) + (y - screw_y).powi(2)).sqrt();
                (SCREW_HEAD - 1.0 - distance).clamp(0.0, 1.0)
            }
        }
    }

    /// The surface's colour with the defect on it.
    pub(super) fn paint(&self, kind: Kind, x: f32, y: f32, surface: [f32; 3]) -> [f32; 3] {
        match self {
            Defect::Scratch { .. } => {
                let flank = self.cover(x - 1.6, y - 1.6);
                let dark = blend(surface, surface.map(|channel| channel * 0.55), flank * 0.8);
                let bright = surface.map(|channel| (channel + 88.0).min(248.0));
                blend(dark, bright, self.cover(x, y))
            }
            Defect::Crack { .. } => {
                let lip = self.cover(x - 2.0, y - 2.0).max(self.cover(x + 1.6, y + 1.6));
                let lifted = surface.map(|channel| channel + if kind == Kind::Gasket { 66.0 } else { 22.0 });
                let with_lip = blend(surface, lifted, lip * 0.85);
                blend(with_lip, [14.0, 13.0, 13.0], self.cover(x, y))
            }
            Defect::Stain { seed, .. } => {
                let grain = 1.0 + 0.12 * plane_noise(x * 0.25, y * 0.25, seed ^ 9);
                let (colour, strength) = match kind {
                    Kind::Gasket => ([150.0, 138.0, 118.0], 0.68),
                    Kind::Bracket => ([96.0, 66.0, 34.0], 0.74),
                    Kind::Plate => ([52.0, 40.0, 26.0], 0.8),
                };
                blend(surface, colour.map(|channel: f32| channel * grain), strength * self.cover(x, y))
            }
            Defect::MissingScrew { .. } => surface,
        }
    }
}

fn blend(from: [f32; 3], to: [f32; 3], share: f32) -> [f32; 3] {
    std::array::from_fn(|channel| from[channel] + (to[channel] - from[channel]) * share)
}

/// Distance to a line of points, and how far along it the nearest point lies, 0 to 1.
fn line_distance(points: &[(f32, f32)], x: f32, y: f32) -> (f32, f32) {
    let mut nearest = (f32::MAX, 0.0);
    for (index, pair) in points.windows(2).enumerate() {
        let (ax, ay) = pair[0];
        let (dx, dy) = (pair[1].0 - ax, pair[1].1 - ay);
        let length_squared = (dx * dx + dy * dy).max(1e-6);
        let along = (((x - ax) * dx + (y - ay) * dy) / length_squared).clamp(0.0, 1.0);
        let distance_squared = (x - ax - along * dx).powi(2) + (y - ay - along * dy).powi(2);
        if distance_squared < nearest.0 {
            nearest = (distance_squared, (index as f32 + along) / (points.len() - 1) as f32);
        }
    }
    (nearest.0.sqrt(), nearest.1)
}

/// One or two defects that this kind of part can have, apart from each other. `turn` is the part's angle in radians.
pub(super) fn choose(kind: Kind, turn: f32, look: &mut Look, random: &mut Random) -> Vec<Defect> {
    let wanted = if random.chance(0.25) { 2 } else { 1 };
    let mut defects: Vec<(Defect, (f32, f32))> = Vec::new();
    for _ in 0..200 {
        if defects.len() == wanted {
            break;
        }
        let Some((defect, middle)) = one(kind, turn, random) else { continue };
        let apart = |other: &(f32, f32)| ((other.0 - middle.0).powi(2) + (other.1 - middle.1).powi(2)).sqrt() > 58.0;
        if defects.iter().all(|(_, other)| apart(other)) {
            if let Defect::MissingScrew { index } = defect {
                look.missing_screw[index] = true;
            }
            defects.push((defect, middle));
        }
    }
    defects.into_iter().map(|(defect, _)| defect).collect()
}

fn one(kind: Kind, turn: f32, random: &mut Random) -> Option<(Defect, (f32, f32))> {
    match (kind, random.index(4)) {
        (Kind::Gasket, 0..2) => crack(kind, turn, random),
        (Kind::Gasket, _) => stain(kind, random),
        (Kind::Bracket, 0) => crack(kind, turn, random),
        (Kind::Bracket, 1) => stain(kind, random),
        (Kind::Bracket, _) => scratch(kind, turn, random),
        (Kind::Plate, 0) => scratch(kind, turn, random),
        (Kind::Plate, 1) => stain(kind, random),
        (Kind::Plate, _) => {
            let index = random.index(4);
            Some((Defect::MissingScrew { index }, SCREWS[index]))
        }
    }
}

fn scratch(kind: Kind, turn: f32, random: &mut Random) -> Option<(Defect, (f32, f32))> {
    let start = (random.between(-80.0, 80.0), random.between(-64.0, 64.0));
    let on_picture = random.between(28f32.to_radians(), 62f32.to_radians()) * random.sign();
    let heading = on_picture - turn;
    let length = random.between(36.0, 72.0);
    let bend = random.between(-0.5, 0.5);
    let points: Vec<(f32, f32)> = (0..=6)
        .scan(start, |at, step| {
            let here = *at;
            let angle = heading + bend * (step as f32 / 6.0 - 0.5);
            *at = (at.0 + angle.cos() * length / 6.0, at.1 + angle.sin() * length / 6.0);
            Some(here)
        })
        .collect();
    let clear = points.iter().all(|&(x, y)| kind.distance(x, y) < -3.0 && !near_screw(kind, x, y));
    let middle = points[3];
    clear.then(|| (Defect::Scratch { points, width: random.between(1.8, 2.8) }, middle))
}

fn crack(kind: Kind, turn: f32, random: &mut Random) -> Option<(Defect, (f32, f32))> {
    let angle = random.between(0.0, std::f32::consts::TAU);
    let reach = super::shapes::REACH;
    let mut distance_from_middle = reach;
    while kind.distance(distance_from_middle * angle.cos(), distance_from_middle * angle.sin()) > -0.5 {
        distance_from_middle -= 1.0;
        if distance_from_middle < 20.0 {
            return None;
        }
    }
    let start = (distance_from_middle * angle.cos(), distance_from_middle * angle.sin());
    let on_picture =
        random.between(30f32.to_radians(), 60f32.to_radians()) + std::f32::consts::FRAC_PI_2 * random.index(4) as f32;
    let heading = on_picture - turn;
    let steps = 6;
    let length = random.between(24.0, 44.0);
    let mut points = vec![start];
    let mut at = start;
    for step in 0..steps {
        let jag = random.between(0.25, 0.7) * if step % 2 == 0 { 1.0 } else { -1.0 };
        let angle = heading + jag;
        at = (at.0 + angle.cos() * length / steps as f32, at.1 + angle.sin() * length / steps as f32);
        points.push(at);
    }
    let inside = points[1..].iter().all(|&(x, y)| kind.distance(x, y) < -1.5);
    let middle = points[3];
    inside.then(|| (Defect::Crack { points, width: random.between(2.8, 4.0) }, middle))
}

fn stain(kind: Kind, random: &mut Random) -> Option<(Defect, (f32, f32))> {
    let (x, y) = (random.between(-80.0, 80.0), random.between(-64.0, 64.0));
    let radius = random.between(9.0, 17.0);
    let room = if kind == Kind::Gasket { 8.0 } else { radius * 0.8 };
    let clear = kind.distance(x, y) < -room && !near_screw(kind, x, y);
    clear.then(|| (Defect::Stain { x, y, radius, seed: random.bits() }, (x, y)))
}

fn near_screw(kind: Kind, x: f32, y: f32) -> bool {
    kind == Kind::Plate
        && SCREWS.iter().any(|&(screw_x, screw_y)| (x - screw_x).powi(2) + (y - screw_y).powi(2) < 24f32.powi(2))
}
