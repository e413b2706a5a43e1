//! What happens on the simulated line and when.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What the line makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Product {
    /// Rubber gaskets and sheet-metal brackets.
    #[default]
    GasketBracket,
    /// Screw plates.
    Plate,
    /// Every kind of part.
    Mixed,
}

/// What goes wrong, or merely changes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Happening {
    /// The camera repeats its last picture; the line goes on.
    Freeze,
    /// The camera gives black pictures.
    Black,
    /// The lens is out of focus.
    Blur,
    /// Exposure is far too long.
    OverExposed,
    /// Somebody bumped the camera: it shakes and then looks elsewhere.
    Bumped,
    /// No parts come.
    EmptyBelt,
    /// The belt stands still; the camera's noise goes on.
    LineStop,
    /// The line makes another product.
    ProductChange {
        /// What it makes now.
        product: Product,
    },
    /// The light fades over the first half and stays low; the lamp is replaced at the end.
    LightDown {
        /// Share of the light that is left, 0 to 1.
        to: f32,
    },
    /// A bad lot.
    DefectLot {
        /// Share of defective parts, 0 to 1.
        share: f32,
    },
}

impl Happening {
    /// Name of the event in scripts and truth.
    pub fn name(&self) -> &'static str {
        match self {
            Happening::Freeze => "freeze",
            Happening::Black => "black",
            Happening::Blur => "blur",
            Happening::OverExposed => "over_exposed",
            Happening::Bumped => "bumped",
            Happening::EmptyBelt => "empty_belt",
            Happening::LineStop => "line_stop",
            Happening::ProductChange { .. } => "product_change",
            Happening::LightDown { .. } => "light_down",
            Happening::DefectLot { .. } => "defect_lot",
        }
    }

    /// Whether pictures taken during it do not show the line as it should be seen.
    pub fn spoils_picture(&self) -> bool {
        matches!(
            self,
            Happening::Freeze | Happening::Black | Happening::Blur | Happening::OverExposed | Happening::Bumped
        )
    }
}

/// One event of a script. Times are seconds of the line's own clock: frame number divided by fps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "EventText")]
pub struct Event {
    /// When it begins.
    pub at_s: f64,
    /// How long it lasts.
    pub for_s: f64,
    /// What it is.
    #[serde(flatten)]
    pub happening: Happening,
}

/// An event as written: `flatten` and `deny_unknown_fields` do not go together, so every key stands here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventText {
    at_s: f64,
    for_s: f64,
    kind: String,
    product: Option<Product>,
    to: Option<f32>,
    share: Option<f32>,
}

impl TryFrom<EventText> for Event {
    type Error = String;

    fn try_from(text: EventText) -> std::result::Result<Self, String> {
        let happening = match text.kind.as_str() {
            "freeze" => Happening::Freeze,
            "black" => Happening::Black,
            "blur" => Happening::Blur,
            "over_exposed" => Happening::OverExposed,
            "bumped" => Happening::Bumped,
            "empty_belt" => Happening::EmptyBelt,
            "line_stop" => Happening::LineStop,
            "product_change" => Happening::ProductChange { product: text.product.ok_or("found no `product`")? },
            "light_down" => Happening::LightDown { to: text.to.unwrap_or(0.8) },
            "defect_lot" => Happening::DefectLot { share: text.share.unwrap_or(0.3) },
            other => return Err(format!("found kind `{other}`, expected one of {KINDS}")),
        };
        let stray = [
            ("product", text.product.is_some() && !matches!(happening, Happening::ProductChange { .. })),
            ("to", text.to.is_some() && !matches!(happening, Happening::LightDown { .. })),
            ("share", text.share.is_some() && !matches!(happening, Happening::DefectLot { .. })),
        ];
        if let Some((key, _)) = stray.iter().find(|(_, stray)| *stray) {
            return Err(format!("found `{key}`, which `{}` does not have", happening.name()));
        }
        Ok(Event { at_s: text.at_s, for_s: text.for_s, happening })
    }
}

const KINDS: &str =
    "freeze, black, blur, over_exposed, bumped, empty_belt, line_stop, product_change, light_down, defect_lot";

/// A script: what the line makes, how often it fails and what happens when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Name, for people.
    pub name: String,
    /// What the line makes outside product changes.
    #[serde(default)]
    pub product: Product,
    /// Share of defective parts outside bad lots, 0 to 1.
    #[serde(default = "usual_defects")]
    pub defects: f32,
    /// Starts again after this many seconds; without it the last event is followed by the clean line for ever.
    #[serde(default)]
    pub repeat_after_s: Option<f64>,
    /// The events. They may overlap.
    #[serde(default, rename = "event")]
    pub events: Vec<Event>,
}

fn usual_defects() -> f32 {
    0.08
}

impl Script {
    /// Nothing happens; 8 % of the parts are defective.
    pub fn clean() -> Self {
        Script {
            name: "clean".into(),
            product: Product::GasketBracket,
            defects: usual_defects(),
            repeat_after_s: None,
            events: Vec::new(),
        }
    }

    /// Every kind of part, half of them defective, now and then an empty belt: pictures to learn from.
    pub fn training() -> Self {
        Script {
            name: "training".into(),
            product: Product::Mixed,
            defects: 0.5,
            repeat_after_s: Some(60.0),
            events: vec![Event { at_s: 50.0, for_s: 5.0, happening: Happening::EmptyBelt }],
        }
    }

    /// Every event once, with clean stretches of at least ten seconds before and between them; four minutes long.
    pub fn day() -> Self {
        let happenings = [
            (Happening::Freeze, 6.0),
            (Happening::Black, 6.0),
            (Happening::Blur, 8.0),
            (Happening::OverExposed, 8.0),
            (Happening::Bumped, 8.0),
            (Happening::EmptyBelt, 10.0),
            (Happening::LineStop, 8.0),
            (Happening::ProductChange { product: Product::Plate }, 20.0),
            (Happening::LightDown { to: 0.8 }, 30.0),
            (Happening::DefectLot { share: 0.3 }, 24.0),
        ];
        let mut at_s = 12.0;
        let mut events = Vec::new();
        for (happening, for_s) in happenings {
            events.push(Event { at_s, for_s, happening });
            at_s += for_s + 10.0;
        }
        Script { name: "day".into(), repeat_after_s: Some(at_s + 2.0), events, ..Script::clean() }
    }

    /// A named script, or a TOML file (anything that ends in `.toml` or holds a `/`).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`]: unknown name, unreadable file, unknown keys, values out of range.
    pub fn named_or_file(text: &str) -> Result<Self> {
        match text {
            "clean" => Ok(Script::clean()),
            "day" => Ok(Script::day()),
            "training" => Ok(Script::training()),
            path if path.ends_with(".toml") || path.contains('/') => Script::read(Path::new(path)),
            other => Err(Error::usage(format!(
                "found script `{other}`, expected `clean`, `day`, `training` or a .toml file"
            ))),
        }
    }

    /// Reads a script file.
    ///
    /// # Errors
    /// As [`Script::named_or_file`].
    pub fn read(path: &Path) -> Result<Self> {
        let place = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::usage("the script cannot be read, expected a TOML file").because(error).at(place)
        })?;
        Script::from_toml(&text).map_err(|error| error.at(path.display()))
    }

    /// Reads a script from TOML text.
    ///
    /// # Errors
    /// As [`Script::named_or_file`].
    pub fn from_toml(text: &str) -> Result<Self> {
        let script: Script = toml::from_str(text).map_err(|error| {
            Error::usage("found a script that does not fit, expected the keys of docs/simulated-line.md").because(error)
        })?;
        script.check()?;
        Ok(script)
    }

    fn check(&self) -> Result<()> {
        let share = |name: &str, value: f32| {
            if (0.0..=1.0).contains(&value) {
                Ok(())
            } else {
                Err(Error::usage(format!("found `{name}` = {value}, expected 0 to 1")))
            }
        };
        share("defects", self.defects)?;
        if let Some(period_s) = self.repeat_after_s
            && !(period_s.is_finite() && period_s >= 1.0)
        {
            return Err(Error::usage(format!("found `repeat_after_s` = {period_s}, expected at least 1")));
        }
        for (index, event) in self.events.iter().enumerate() {
            let place = format!("event {} ({})", index + 1, event.happening.name());
            if !(event.at_s.is_finite() && event.at_s >= 0.0 && event.for_s.is_finite() && event.for_s > 0.0) {
                return Err(Error::usage(format!(
                    "found at_s = {} and for_s = {}, expected a time from 0 and a length above 0",
                    event.at_s, event.for_s
                ))
                .at(place));
            }
            match event.happening {
                Happening::LightDown { to } => share("to", to).map_err(|error| error.at(place))?,
                Happening::DefectLot { share: value } => share("share", value).map_err(|error| error.at(place))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Events in force at `time_s` of the line's clock, with the share of each that has passed, 0 to 1.
    pub fn in_force(&self, time_s: f64) -> impl Iterator<Item = (&Event, f64)> {
        let time_s = self.repeat_after_s.map_or(time_s, |period_s| time_s.rem_euclid(period_s));
        self.events.iter().filter_map(move |event| {
            let passed = (time_s - event.at_s) / event.for_s;
            (0.0..1.0).contains(&passed).then_some((event, passed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_holds_every_event_with_clean_stretches_between() {
        let day = Script::day();
        day.check().unwrap();
        assert_eq!(day.events.len(), 10);
        assert!(day.events[0].at_s >= 10.0);
        for pair in day.events.windows(2) {
            assert!(pair[1].at_s - (pair[0].at_s + pair[0].for_s) >= 10.0);
        }
        let last = day.events[9];
        assert!(day.repeat_after_s.unwrap() - (last.at_s + last.for_s) >= 10.0);
        assert_eq!(day.in_force(13.0).map(|(event, _)| event.happening.name()).collect::<Vec<_>>(), ["freeze"]);
        assert_eq!(day.in_force(day.repeat_after_s.unwrap() + 13.0).count(), 1);
        assert_eq!(day.in_force(5.0).count(), 0);
    }

    #[test]
    fn a_script_file_survives_the_round_trip() {
        let day = Script::day();
        let text = toml::to_string(&day).unwrap();
        assert_eq!(Script::from_toml(&text).unwrap(), day);
    }

    #[test]
    fn scripts_that_do_not_fit_are_refused() {
        for bad in [
            "",
            "name = 1",
            "name = 'x'\nspeed = 3",
            "name = 'x'\ndefects = 2",
            "name = 'x'\nrepeat_after_s = 0",
            "name = 'x'\n[[event]]\nat_s = 1\nkind = 'freeze'",
            "name = 'x'\n[[event]]\nat_s = -1\nfor_s = 2\nkind = 'freeze'",
            "name = 'x'\n[[event]]\nat_s = 1\nfor_s = 2\nkind = 'flood'",
            "name = 'x'\n[[event]]\nat_s = 1\nfor_s = 2\nkind = 'light_down'\nto = 3",
            "name = 'x'\n[[event]]\nat_s = 1\nfor_s = 2\nkind = 'freeze'\nshade = 3",
            "name = 'x'\n[[event]]\nat_s = 1\nfor_s = 2\nkind = 'freeze'\nshare = 0.3",
            "name = 'x'\n[[event]]\nat_s = 1\nfor_s = 2\nkind = 'product_change'",
        ] {
            let error = Script::from_toml(bad).expect_err(bad);
            assert_eq!(error.kind().exit_code(), 2, "{bad}");
        }
    }
}
