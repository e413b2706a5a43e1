//! The line itself: parts enter, move, are seen and leave; events of the script change what happens.

use super::backdrop::Backdrop;
use super::optics::{Exposure, Optics};
use super::options::{SimOptions, Triggers};
use super::random::Random;
use super::script::{Happening, Product};
use super::shapes::{Kind, REACH};
use super::sprite::{Extent, Sprite};
use super::truth::{CLASSES, FrameTruth, PartTruth, TruthBox};
use crate::error::Result;
use crate::units::BoxPx;
use std::sync::Arc;

/// The height that shapes are drawn for; other picture heights scale them.
const DESIGN_HEIGHT_PX: f32 = 384.0;
/// How far the belt moves in a second, pixels of the design height.
const BELT_SPEED: f32 = 300.0;

#[derive(Debug)]
struct Part {
    id: Arc<str>,
    kind: Kind,
    sprite: Sprite,
    /// The belt's travel at which the middle of the part is at column 0.
    at_zero_px: i64,
    y_px: i32,
}

/// What of the script is in force in one frame.
#[derive(Debug, Clone, Default)]
struct State {
    names: Vec<String>,
    freeze: bool,
    black: bool,
    blur: bool,
    over_exposed: bool,
    bumped_since: Option<f64>,
    empty_belt: bool,
    line_stop: bool,
    product: Product,
    light: f32,
    defects: f32,
    spoilt: bool,
}

/// A simulated line and its camera: [`Line::advance`], then [`Line::picture`].
///
/// ```
/// use edge_trt::camera::sim::{Line, SimOptions};
/// let mut line = Line::new(&SimOptions::parse("sim:?seed=7")?)?;
/// let mut pixels = vec![0; line.picture_bytes()];
/// let truth = line.advance();
/// line.picture(&mut pixels);
/// assert_eq!(truth.frame, 0);
/// # Ok::<(), edge_trt::Error>(())
/// ```
#[derive(Debug)]
pub struct Line {
    options: SimOptions,
    scale: f32,
    step_px: i64,
    backdrop: Backdrop,
    optics: Optics,
    parts: Vec<Part>,
    born: u64,
    next_birth_px: i64,
    travel_px: i64,
    tick: u64,
    state: State,
    held: Vec<u8>,
    holding: bool,
    part_random: Random,
    frame_random: Random,
}

impl Line {
    /// A line at its first frame, with parts already on the belt.
    ///
    /// # Errors
    /// As [`SimOptions::check`].
    pub fn new(options: &SimOptions) -> Result<Self> {
        options.check()?;
        let seed = options.seed;
        let scale = options.size.height_px as f32 / DESIGN_HEIGHT_PX;
        let step_px = ((BELT_SPEED * scale / options.fps).round() as i64).max(1);
        let mut line = Line {
            options: options.clone(),
            scale,
            step_px,
            backdrop: Backdrop::draw(options.size, scale, seed),
            optics: Optics::new(options.size, seed),
            parts: Vec::new(),
            born: 0,
            next_birth_px: 0,
            travel_px: 0,
            tick: 0,
            state: State::default(),
            held: Vec::new(),
            holding: false,
            part_random: Random::new(seed, 1),
            frame_random: Random::new(seed, 2),
        };
        line.state = line.state_at(0.0);
        line.travel_px = i64::from(options.size.width_px) / 2;
        Ok(line)
    }

    /// Bytes of one RGB picture.
    pub fn picture_bytes(&self) -> usize {
        self.options.size.pixels() * 3
    }

    /// Frames already advanced over.
    pub fn ticks(&self) -> u64 {
        self.tick
    }

    /// Moves the line on by one frame and tells what is before the camera now. `frame` counts from 0.
    pub fn advance(&mut self) -> FrameTruth {
        let time_s = self.tick as f64 / f64::from(self.options.fps);
        self.state = self.state_at(time_s);
        let before_px = self.travel_px;
        if self.tick > 0 && !self.state.line_stop {
            self.travel_px += self.step_px;
        }
        self.births();
        let width_px = i64::from(self.options.size.width_px);
        let reach_px = self.reach_px();
        let travel_px = self.travel_px;
        self.parts.retain(|part| travel_px - part.at_zero_px <= width_px + reach_px);
        let truth = self.truth(time_s, before_px);
        self.tick += 1;
        truth
    }

    /// The picture of the frame that [`Line::advance`] moved to, RGB, `pixels` of [`Line::picture_bytes`] bytes.
    pub fn picture(&mut self, pixels: &mut [u8]) {
        if self.state.freeze && self.holding {
            pixels.copy_from_slice(&self.held);
            return;
        }
        self.holding = false;
        self.draw(pixels);
        if self.state.freeze {
            self.held.clear();
            self.held.extend_from_slice(pixels);
            self.holding = true;
        }
    }

    fn draw(&mut self, pixels: &mut [u8]) {
        let flicker = 1.0 + 0.004 * self.frame_random.normal();
        let mut exposure = Exposure { gain: self.state.light * flicker, offset: 0.0, blur_px: 0 };
        if self.state.black {
            pixels.fill(0);
            exposure.gain = 0.0;
            self.optics.expose(pixels, exposure, &mut self.frame_random);
            return;
        }
        let aside = self.aside();
        self.backdrop.paint(pixels, self.travel_px, aside);
        let (width, height) = (self.options.size.width_px as i32, self.options.size.height_px as i32);
        for part in &self.parts {
            let x = (self.travel_px - part.at_zero_px) as i32 - aside.0;
            part.sprite.paste(pixels, width, height, x, part.y_px - aside.1);
        }
        if self.state.blur {
            exposure.blur_px = ((6.0 * self.scale).round() as usize).max(1);
        }
        if self.state.over_exposed {
            exposure.gain *= 3.0;
            exposure.offset = 30.0;
        }
        self.optics.expose(pixels, exposure, &mut self.frame_random);
    }

    fn state_at(&self, time_s: f64) -> State {
        let script = &self.options.script;
        let mut state = State {
            product: script.product,
            light: 1.0,
            defects: self.options.defects.unwrap_or(script.defects),
            ..State::default()
        };
        for (event, passed) in script.in_force(time_s) {
            state.names.push(event.happening.name().to_owned());
            state.spoilt |= event.happening.spoils_picture();
            match event.happening {
                Happening::Freeze => state.freeze = true,
                Happening::Black => state.black = true,
                Happening::Blur => state.blur = true,
                Happening::OverExposed => state.over_exposed = true,
                Happening::Bumped => state.bumped_since = Some(passed * event.for_s),
                Happening::EmptyBelt => state.empty_belt = true,
                Happening::LineStop => state.line_stop = true,
                Happening::ProductChange { product } => state.product = product,
                Happening::LightDown { to } => state.light *= 1.0 - (1.0 - to) * (passed as f32 * 2.0).min(1.0),
                Happening::DefectLot { share } => state.defects = share,
            }
        }
        state
    }

    fn reach_px(&self) -> i64 {
        ((REACH + 12.0) * self.scale).ceil() as i64
    }

    /// New parts enter so far apart that a part at the inspection position is alone in the picture.
    fn births(&mut self) {
        let reach_px = self.reach_px();
        while self.travel_px >= self.next_birth_px {
            let jitter_px = self.part_random.between(0.0, 70.0 * self.scale) as i64;
            let pitch_px = i64::from(self.options.size.width_px) / 2 + self.step_px + reach_px + jitter_px;
            if !self.state.empty_belt {
                let kind = self.kind();
                let defective = self.part_random.chance(self.state.defects);
                let turn = self.part_random.between(-22f32, 22.0).to_radians();
                let half_turn = if self.part_random.chance(0.5) { std::f32::consts::PI } else { 0.0 };
                let sprite = Sprite::draw(kind, defective, turn + half_turn, self.scale, &mut self.part_random);
                let sway_px = self.part_random.between(-24.0, 24.0) * self.scale;
                self.born += 1;
                self.parts.push(Part {
                    id: format!("p{:06}", self.born).into(),
                    kind,
                    sprite,
                    at_zero_px: self.next_birth_px + reach_px,
                    y_px: self.options.size.height_px as i32 / 2 + sway_px as i32,
                });
            }
            self.next_birth_px += pitch_px;
        }
    }

    fn kind(&mut self) -> Kind {
        match self.state.product {
            Product::GasketBracket => [Kind::Gasket, Kind::Bracket][self.part_random.index(2)],
            Product::Plate => Kind::Plate,
            Product::Mixed => [Kind::Gasket, Kind::Bracket, Kind::Plate][self.part_random.index(3)],
        }
    }

    /// How far the camera looks aside, pixels: it shakes for a second, then stays turned away.
    fn aside(&self) -> (i32, i32) {
        let Some(since_s) = self.state.bumped_since else { return (0, 0) };
        let since = since_s as f32;
        let shake = (since * 38.0).sin() * 14.0 * (-since * 4.0).exp();
        ((((24.0 + shake) * self.scale).round()) as i32, (((-17.0 + 0.6 * shake) * self.scale).round()) as i32)
    }

    fn truth(&self, time_s: f64, before_px: i64) -> FrameTruth {
        let position_px = i64::from(self.options.size.width_px) / 2;
        let aside = if self.state.spoilt { self.aside() } else { (0, 0) };
        let mut boxes = Vec::new();
        let mut inspected = None;
        for part in &self.parts {
            let x_px = self.travel_px - part.at_zero_px;
            let middle = (x_px as i32 - aside.0, part.y_px - aside.1);
            let class_id = part.kind.class_id();
            boxes.extend(self.seen(part, class_id, &part.sprite.outline, middle));
            for (class_id, extent) in &part.sprite.defects {
                boxes.extend(self.seen(part, *class_id, extent, middle));
            }
            if before_px - part.at_zero_px < position_px && x_px >= position_px {
                inspected = Some(PartTruth {
                    id: Arc::clone(&part.id),
                    kind: CLASSES[class_id as usize].to_owned(),
                    defective: !part.sprite.defects.is_empty(),
                    defects: part.sprite.defects.iter().map(|(id, _)| CLASSES[*id as usize].to_owned()).collect(),
                });
            }
        }
        boxes.sort_by_key(TruthBox::is_defect);
        FrameTruth {
            frame: self.tick,
            time_s,
            part: inspected,
            events: self.state.names.clone(),
            picture_good: !self.state.spoilt,
            light: self.state.light,
            belt_moves: !self.state.line_stop,
            boxes,
        }
    }

    fn seen(&self, part: &Part, class_id: u32, extent: &Extent, middle: (i32, i32)) -> Option<TruthBox> {
        let (width_px, height_px) = (self.options.size.width_px as i32, self.options.size.height_px as f32);
        let whole = extent.whole()?;
        let shown = extent.within(-middle.0, width_px - middle.0)?;
        let (x, y) = (middle.0 as f32, middle.1 as f32);
        let inside = BoxPx::new(
            shown.left_px + x,
            (shown.top_px + y).clamp(0.0, height_px),
            shown.right_px + x,
            (shown.bottom_px + y).clamp(0.0, height_px),
        );
        let visible = inside.area_px2() / whole.area_px2();
        (visible > 0.0).then(|| TruthBox {
            class_id,
            class: CLASSES[class_id as usize].to_owned(),
            edges: inside,
            visible,
            part: Arc::clone(&part.id),
        })
    }

    /// Which frames the camera hands out.
    pub(super) fn triggers(&self) -> Triggers {
        self.options.triggers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line::new(&SimOptions::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn equal_seeds_give_equal_frames_and_others_do_not() {
        let picture = |text: &str| {
            let mut line = line(text);
            let mut pixels = vec![0; line.picture_bytes()];
            for _ in 0..40 {
                line.advance();
                line.picture(&mut pixels);
            }
            pixels
        };
        let first = picture("sim:?seed=3&size=320x192");
        assert!(first == picture("sim:?seed=3&size=320x192"));
        assert!(first != picture("sim:?seed=4&size=320x192"));
    }

    #[test]
    fn every_part_is_inspected_once_and_alone() {
        for text in ["sim:?size=320x192&script=training", "sim:?size=640x384&fps=5", "sim:?size=400x200&fps=60"] {
            let mut line = line(text);
            let width_px = line.options.size.width_px as f32;
            let mut ids = Vec::new();
            for _ in 0..1500 {
                let truth = line.advance();
                if let Some(part) = &truth.part {
                    assert!(truth.boxes.iter().all(|seen| seen.part == part.id), "{text}: a neighbour is in view");
                    let outline = &truth.boxes[0];
                    assert!(outline.visible > 0.999 && outline.edges.left_px > width_px * 0.15, "{text}");
                    assert_eq!(part.defective, truth.boxes.iter().any(TruthBox::is_defect));
                    ids.push(part.id.clone());
                }
            }
            assert!(ids.len() > 15, "{text}: {} parts", ids.len());
            let expected: Vec<Arc<str>> = (0..ids.len()).map(|index| format!("p{:06}", index + 1).into()).collect();
            assert_eq!(ids, expected, "{text}");
        }
    }

    #[test]
    fn frozen_pictures_repeat_and_a_stopped_line_does_not() {
        let mut line = line("sim:?size=320x192&script=day");
        let day = line.options.script.clone();
        let at = |name: &str| day.events.iter().find(|event| event.happening.name() == name).unwrap().at_s;
        let mut pixels = vec![0; line.picture_bytes()];
        let mut before = pixels.clone();
        for _ in 0..(at("line_stop") + 4.0) as u64 * 30 {
            let truth = line.advance();
            let time_s = truth.time_s;
            let look = [at("freeze") + 3.0, at("black") + 3.0, at("line_stop") + 3.0, 5.0]
                .iter()
                .any(|&wanted| (time_s - wanted).abs() < 0.05)
                || truth.events == ["freeze"];
            if !look {
                continue;
            }
            std::mem::swap(&mut pixels, &mut before);
            line.picture(&mut pixels);
            let mean = pixels.iter().map(|&value| u64::from(value)).sum::<u64>() / pixels.len() as u64;
            if time_s > at("freeze") + 0.01 && truth.events == ["freeze"] {
                assert!(pixels == before, "{time_s}");
                assert!(!truth.picture_good);
            } else {
                assert!(pixels != before, "{time_s}");
            }
            assert_eq!(mean < 10, truth.events == ["black"], "{time_s}: mean {mean}");
            assert_eq!(truth.belt_moves, truth.events != ["line_stop"]);
        }
    }

    #[test]
    fn light_fades_and_comes_back() {
        let line = line("sim:?script=day");
        let event = *line.options.script.events.iter().find(|event| event.happening.name() == "light_down").unwrap();
        assert!(line.state_at(event.at_s + 1.0).light > 0.95);
        assert!((line.state_at(event.at_s + event.for_s - 0.1).light - 0.8).abs() < 1e-3);
        assert_eq!(line.state_at(event.at_s + event.for_s + 0.1).light, 1.0);
    }
}
