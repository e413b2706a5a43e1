//! The rules for where INT8 goes that a recipe can change, and what they are when it says nothing.

use crate::config::precision::{Int8Rules, Rest};
use crate::error::{Error, Result};
use crate::onnx::index::GraphIndex;
use crate::onnx::node;
use onnx_protobuf::NodeProto;
use std::collections::BTreeSet;

/// Where INT8 goes beside what the structure of a graph decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::build) struct Rules<'a> {
    /// Whether what is not in INT8 computes in half.
    pub(in crate::build) half_rest: bool,
    /// Whether the first convolution, which reads the picture, is in INT8.
    pub(in crate::build) first: bool,
    /// Convolutions with fewer channels than this, in and out, per group, stay out; 0: none does.
    pub(in crate::build) few_channels: u32,
    /// Whether depthwise convolutions are in INT8.
    pub(in crate::build) depthwise: bool,
    /// Whether the convolutions of attentions are in INT8.
    pub(in crate::build) attention: bool,
    /// Whether a residual sum adds tensors that are both stored in 8 bits.
    pub(in crate::build) sums: bool,
    /// Whether the head's output convolutions read tensors that are stored in 8 bits.
    pub(in crate::build) head_inputs: bool,
    /// Convolutions that stay out, by name or part.
    pub(in crate::build) keep: &'a [String],
}

impl<'a> Rules<'a> {
    /// The rules as `asked` for; `on_gpu` decides what was not asked. CPUs have no half arithmetic.
    pub(in crate::build) fn of(asked: &'a Int8Rules, on_gpu: bool) -> Rules<'a> {
        let usual = Rules {
            half_rest: on_gpu,
            // What TensorRT fuses; a CPU engine has nothing of it.
            first: on_gpu,
            few_channels: if on_gpu { 32 } else { 0 },
            depthwise: true,
            // With the convolution of the positions in INT8 TensorRT 8.6 makes no plan, and 10.6 one that answers wrongly.
            attention: !on_gpu,
            sums: on_gpu,
            head_inputs: on_gpu,
            keep: &asked.keep,
        };
        Rules {
            half_rest: asked.rest.map_or(usual.half_rest, |rest| rest == Rest::Half),
            first: asked.first.unwrap_or(usual.first),
            few_channels: asked.few_channels.unwrap_or(usual.few_channels),
            depthwise: asked.depthwise.unwrap_or(usual.depthwise),
            attention: asked.attention.unwrap_or(usual.attention),
            sums: asked.sums.unwrap_or(usual.sums),
            head_inputs: asked.head_inputs.unwrap_or(usual.head_inputs),
            ..usual
        }
    }

    /// Why the convolution `node` with a weight of `sizes` stays out of INT8; `reads_picture`: it is the first.
    pub(super) fn reason(&self, node: &NodeProto, sizes: &[i64], reads_picture: bool) -> Result<Option<String>> {
        let name = node::label(node);
        if self.keep.iter().any(|pattern| covers(pattern, &name)) {
            return Ok(Some("kept by the recipe".to_owned()));
        }
        if reads_picture {
            return Ok((!self.first).then(|| "reads the picture itself".to_owned()));
        }
        self.unsuited(node, sizes)
    }

    /// Why the kind of the convolution `node` with a weight of `sizes` is left out: TensorRT has no good kernel for it.
    pub(super) fn unsuited(&self, node: &NodeProto, sizes: &[i64]) -> Result<Option<String>> {
        let groups = node::int_or(node, "group", 1)?.max(1);
        let &[outputs, inputs, ..] = sizes else { return Ok(None) };
        if groups > 1 && inputs == 1 {
            return Ok((!self.depthwise).then(|| "depthwise".to_owned()));
        }
        let few = inputs.max(outputs / groups) < i64::from(self.few_channels);
        Ok(few.then(|| format!("fewer than {} channels", self.few_channels)))
    }

    /// Every pattern must mean something in the graph behind `index`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for one that no convolution has in its name, with the closest that one has.
    pub(super) fn check(&self, index: &GraphIndex<'_>) -> Result<()> {
        let convolutions = index.graph().node.iter().filter(|node| node.op_type == "Conv");
        let names: Vec<String> = convolutions.map(node::label).collect();
        let Some(lost) = self.keep.iter().find(|pattern| !names.iter().any(|name| covers(pattern, name))) else {
            return Ok(());
        };
        let mut parts = BTreeSet::new();
        for name in &names {
            let steps: Vec<&str> = node::steps(name).collect();
            parts.extend((1..=steps.len()).filter_map(|some| Some(steps.get(..some)?.join("/"))));
        }
        let wanted = node::steps(lost).collect::<Vec<_>>().join("/");
        let closest = parts.into_iter().min_by_key(|part| distance(part, &wanted)).unwrap_or_default();
        Err(Error::usage(format!(
            "found no convolution for `{lost}` to keep out of INT8, expected a name or a part of the network: the closest is `{closest}`"
        ))
        .at("`--int8-keep`, recipe field `int8.keep`")
        .hint("the report lists every convolution by its name; `model.10` means all of that part"))
    }
}

/// Whether `pattern` is the name or begins it, step by step: `model.2` covers `/model.2/cv1/conv/Conv`, and nothing of `/model.22`.
fn covers(pattern: &str, name: &str) -> bool {
    let mut wanted = node::steps(pattern).peekable();
    wanted.peek().is_some() && node::begins_with(name, wanted)
}

/// Insertions, removals and exchanges of characters that make `other` of `one`.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, character) in one.chars().enumerate() {
        let mut corner = at;
        let mut left = at + 1;
        row.first_mut().into_iter().for_each(|first| *first = left);
        for (above, wanted) in row.iter_mut().skip(1).zip(&other) {
            left = (corner + usize::from(character != *wanted)).min(left + 1).min(*above + 1);
            corner = std::mem::replace(above, left);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::node::make;

    #[test]
    fn a_pattern_covers_a_name_step_by_step() {
        let name = "/model.22/cv3.1/cv3.1.0/conv/Conv";
        for pattern in ["model.22", "/model.22", "model.22/cv3.1", "model.22/cv3.1/", name] {
            assert!(covers(pattern, name), "{pattern}");
        }
        for pattern in ["model.2", "cv3.1", "model.22/cv3", "", "/", "model.22/cv3.1/cv3.1.0/conv/Conv/more"] {
            assert!(!covers(pattern, name), "{pattern}");
        }
        assert!(covers("Conv_17", "Conv_17") && !covers("Conv_1", "Conv_17"));
    }

    /// The textbook's table, against the one row that is kept.
    #[test]
    fn distances_are_those_of_the_whole_table() {
        let naive = |one: &str, other: &str| {
            let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
            let mut table = vec![vec![0; other.len() + 1]; one.len() + 1];
            for i in 0..=one.len() {
                for j in 0..=other.len() {
                    table[i][j] = match (i, j) {
                        (0, _) => j,
                        (_, 0) => i,
                        _ => (table[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]))
                            .min(table[i - 1][j] + 1)
                            .min(table[i][j - 1] + 1),
                    };
                }
            }
            table[one.len()][other.len()]
        };
        let words = ["", "model.1", "model.10", "modle.10", "model.22/m.0", "cv3", "kitten", "sitting"];
        for one in words {
            for other in words {
                assert_eq!(distance(one, other), naive(one, other), "{one} {other}");
            }
        }
    }

    fn convolution(groups: i64) -> NodeProto {
        make::node("Conv", "/model.5/conv/Conv", &["x", "w"], &["y"], vec![make::int("group", groups)])
    }

    #[test]
    fn each_rule_takes_its_own_and_nothing_else() {
        let all = Int8Rules::default();
        let none = Rules { first: true, few_channels: 0, ..Rules::of(&all, true) };
        let why =
            |rules: Rules<'_>, groups, sizes: &[i64], first| rules.reason(&convolution(groups), sizes, first).unwrap();
        let (plain, thin, deep, stem) = ([64, 32, 3, 3], [16, 16, 3, 3], [128, 1, 3, 3], [16, 3, 3, 3]);
        for (groups, sizes, first) in [(1, plain, false), (1, thin, false), (128, deep, false), (1, stem, true)] {
            assert_eq!(why(none, groups, &sizes, first), None, "{sizes:?}");
        }
        let few = Rules { few_channels: 32, ..none };
        assert_eq!(why(few, 1, &thin, false).as_deref(), Some("fewer than 32 channels"));
        assert_eq!(why(few, 4, &[64, 16, 3, 3], false).as_deref(), Some("fewer than 32 channels"));
        assert_eq!(why(few, 1, &[16, 64, 1, 1], false), None, "many in");
        assert_eq!(why(few, 1, &[32, 16, 3, 3], false), None, "many out");
        assert_eq!(why(few, 1, &plain, false), None);
        assert_eq!(why(few, 128, &deep, false), None, "depthwise ones have a rule of their own");
        assert_eq!(why(few, 1, &stem, true), None, "the first always reads three channels");
        let depthwise = Rules { depthwise: false, ..none };
        assert_eq!(why(depthwise, 128, &deep, false).as_deref(), Some("depthwise"));
        assert_eq!(why(depthwise, 1, &[64, 1, 3, 3], false), None, "one channel is no group");
        assert_eq!(why(depthwise, 1, &plain, false), None);
        let first = Rules { first: false, ..none };
        assert_eq!(why(first, 1, &stem, true).as_deref(), Some("reads the picture itself"));
        let kept = ["model.5".to_owned()];
        let keep = Rules { keep: &kept, ..none };
        assert_eq!(why(keep, 1, &plain, false).as_deref(), Some("kept by the recipe"));
        assert_eq!(why(keep, 1, &stem, true).as_deref(), Some("kept by the recipe"));
    }

    #[test]
    fn gpus_and_cpus_get_what_they_run_well_unless_asked() {
        let nothing = Int8Rules::default();
        for on_gpu in [true, false] {
            let usual = Rules::of(&nothing, on_gpu);
            assert_eq!((usual.first, usual.sums, usual.head_inputs), (on_gpu, on_gpu, on_gpu));
            assert_eq!((usual.attention, usual.few_channels == 32), (!on_gpu, on_gpu));
            let other = Some(!on_gpu);
            let asked = Int8Rules {
                first: other,
                sums: other,
                head_inputs: other,
                attention: Some(on_gpu),
                ..Int8Rules::default()
            };
            let rules = Rules::of(&asked, on_gpu);
            assert_eq!((rules.first, rules.sums, rules.head_inputs), (!on_gpu, !on_gpu, !on_gpu));
            assert_eq!(rules.attention, on_gpu);
        }
        let of = |rest, on_gpu| Rules::of(&Int8Rules { rest, ..Int8Rules::default() }, on_gpu).half_rest;
        assert!(of(None, true) && !of(None, false));
        assert!(of(Some(Rest::Half), false) && !of(Some(Rest::Float), true));
    }
}
