//! `--fp16` and `--int8` on a small model: what comes out, what is refused.

use crate::common::graphs;
use crate::workbench::{Bench, edge_build, edge_run, model};
use onnx_protobuf::{Message, ModelProto};

/// A bench whose `model.onnx` has one convolution that can be stored in 8 bits.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.write("model.onnx", &graphs::with_convolutions(&model(0.9)));
    bench.pictures("good", 8);
    bench.pictures("val", 5);
    bench
}

fn value(json: &[u8], path: &str) -> serde_json::Value {
    let whole: serde_json::Value = serde_json::from_slice(json).unwrap();
    whole.pointer(path).cloned().unwrap_or_else(|| panic!("no {path}"))
}

#[test]
fn int8_needs_calibration_pictures() {
    bench()
        .build(&["--int8", "-o", "x.edge"])
        .ends_with(2)
        .says_one_error(&["calibration pictures", "--calibration DIR"]);
}

#[test]
fn both_precisions_at_once_are_a_usage_error() {
    bench().build(&["--int8", "--fp16"]).ends_with(2);
}

#[test]
fn a_gate_without_a_precision_is_a_usage_error() {
    bench().build(&["--gate", "val"]).ends_with(2).says_one_error(&["without a precision"]);
}

#[test]
fn one_folder_is_split_and_the_gate_is_in_the_bundle() {
    for precision in ["--fp16", "--int8"] {
        let bench = bench();
        let ran = bench.build(&[precision, "--calibration", "good", "-o", "x.edge", "--json"]).ends_with(0);
        assert_eq!(ran.data.lines().count(), 1);
        assert_eq!(value(ran.data.as_bytes(), "/gate/truth"), "answers of the original");
        assert_eq!(value(ran.data.as_bytes(), "/bundle"), "x.edge");
        assert!(ran.people.contains("4 pictures for the ranges, 4 for the gate"), "{}", ran.people);
        let inspected = bench.edge_build(&["inspect", "--json", "x.edge"]).ends_with(0);
        let gate = value(inspected.data.as_bytes(), "/manifest/gate");
        assert_eq!(gate["truth"], "answers of the original");
        assert_eq!(gate["pictures"], 4);
        let asked = value(inspected.data.as_bytes(), "/manifest/precision/asked");
        assert_eq!(asked, precision.trim_start_matches('-'));
        let found = value(inspected.data.as_bytes(), "/manifest/precision/found");
        let name = if precision == "--int8" { "int8" } else { "f16" };
        assert!(found[name].as_u64().unwrap() >= 1, "{found}");
        let page = String::from_utf8(bench.read("x.report.html")).unwrap();
        assert!(page.contains("passed") && !page.contains("http"), "the page needs no other file");
        assert_eq!(value(&bench.read("x.report.json"), "/written"), true);
    }
}

/// N04: pictures that say nothing are no calibration.
#[test]
fn pictures_that_cannot_be_used_are_named() {
    let bench = bench();
    bench.write("broken/a.png", b"no picture");
    let error =
        ["folder of pictures", "found no usable picture among 2 files (1 cannot be read, 1 show one colour only)"];
    image::RgbImage::new(40, 40).save(bench.path("broken/black.png")).unwrap();
    bench.build(&["--int8", "--calibration", "broken", "-o", "x.edge"]).ends_with(6).says_one_error(&error[1..]);
    bench.build(&["--int8", "--calibration", "nowhere", "-o", "x.edge"]).ends_with(6).says_one_error(&error[..1]);
    bench.pictures("one", 1);
    let ran = bench.build(&["--int8", "--calibration", "one", "--gate", "val", "-o", "x.edge"]);
    assert!(ran.people.contains("warning: ranges come from 1 pictures"), "{}", ran.people);
}

#[test]
fn labels_that_do_not_fit_are_refused_and_nothing_is_written() {
    let bench = bench();
    let flags = |labels: &'static str| ["--fp16", "--gate", "val", "--labels", labels, "-o", "x.edge"].to_vec();
    bench.write("other/zzz.txt", b"0 .5 .5 .1 .1");
    bench.build(&flags("other")).ends_with(2).says_one_error(&["no label file for any of", "expected `"]);
    bench.write("classes/000.txt", b"9 .5 .5 .1 .1");
    for number in 1..5 {
        bench.write(&format!("classes/00{number}.txt"), b"9 .5 .5 .1 .1");
    }
    bench.build(&flags("classes")).ends_with(2).says_one_error(&["found class 9, expected 0 to 1"]);
    assert!(!bench.names().iter().any(|name| name.starts_with("x.")), "{:?}", bench.names());
}

#[test]
fn a_model_in_8_bits_is_not_converted_again() {
    let bench = bench();
    bench.build(&["--int8", "--calibration", "good", "-o", "x.edge"]).ends_with(0);
    let bundle = edge_trt::bundle::Bundle::open(&bench.path("x.edge")).unwrap();
    bench.write("model.onnx", &bundle.model().unwrap());
    for precision in ["--int8", "--fp16"] {
        bench
            .build(&[precision, "--calibration", "good", "-o", "y.edge"])
            .ends_with(3)
            .says_one_error(&["in int8 already", "expected a float export"]);
    }
}

/// A change to the file of [`bench`].
type Change = fn(&mut ModelProto);

/// What issue reports bring: one clear error in every precision, nothing is left behind.
#[test]
fn graphs_that_cannot_be_converted_are_refused_in_every_precision() {
    let cases: [(Change, &[&str]); 4] = [
        (
            |model| {
                let weight = model.graph.mut_or_insert_default().initializer.iter_mut();
                let weight = weight.into_iter().find(|weight| weight.name == "second_weight").unwrap();
                weight.float_data.clear();
                weight.raw_data = [f32::NAN; 9].iter().flat_map(|value| value.to_le_bytes()).collect();
            },
            &["9 values that are no number", "`second_weight`", "earlier checkpoint"],
        ),
        (
            |model| {
                let graph = model.graph.mut_or_insert_default();
                let node = graph.node.iter_mut().find(|node| node.name == "second").unwrap();
                "If".clone_into(&mut node.op_type);
                node.attribute.clear();
            },
            &["control flow", "If (node `second`)"],
        ),
        (
            |model| {
                let graph = model.graph.mut_or_insert_default();
                let node = graph.node.iter_mut().find(|node| node.name == "second").unwrap();
                "FusedThing".clone_into(&mut node.op_type);
                "com.example".clone_into(&mut node.domain);
            },
            &["outside the ONNX standard", "com.example.FusedThing (node `second`)"],
        ),
        (
            |model| {
                let input = &mut model.graph.mut_or_insert_default().input[0];
                let shape = input.type_.mut_or_insert_default().mut_tensor_type().shape.mut_or_insert_default();
                for axis in [0, 2] {
                    shape.dim[axis].set_dim_param("batch".to_owned());
                }
            },
            &["the name `batch` for batch (1) and height (64)"],
        ),
    ];
    for (change, words) in cases {
        let bench = bench();
        let mut model = ModelProto::parse_from_bytes(&bench.read("model.onnx")).unwrap();
        change(&mut model);
        bench.write("model.onnx", &model.write_to_bytes().unwrap());
        for precision in ["--fp16", "--int8"] {
            bench
                .build(&[precision, "--imgsz", "64", "--calibration", "good", "-o", "x.edge", "--report", "."])
                .ends_with(3)
                .says_one_error(words);
        }
        assert!(!bench.names().iter().any(|name| name.starts_with("x.")), "{:?}", bench.names());
    }
}

/// Zero pictures, and pictures that all look the same.
#[test]
fn folders_that_hold_nothing_are_no_calibration() {
    let bench = bench();
    std::fs::create_dir(bench.path("empty")).unwrap();
    image::RgbImage::new(40, 40).save(bench.path("empty.png")).unwrap();
    bench
        .build(&["--int8", "--calibration", "empty", "-o", "x.edge"])
        .ends_with(6)
        .says_one_error(&["found no picture among 0 entries", "empty"]);
    std::fs::create_dir(bench.path("black")).unwrap();
    for number in 0..3 {
        image::RgbImage::new(40, 40).save(bench.path(&format!("black/{number}.png"))).unwrap();
    }
    for precision in ["--int8", "--fp16"] {
        bench
            .build(&[precision, "--calibration", "black", "-o", "x.edge"])
            .ends_with(6)
            .says_one_error(&["no usable picture among 3 files", "3 show one colour only"]);
    }
    assert!(!bench.names().iter().any(|name| name.starts_with("x.")), "{:?}", bench.names());
}

/// `--io fp16`: the borders are halves, the answers stay within the known ones' tolerance.
#[test]
fn inputs_and_outputs_in_half() {
    for precision in ["--fp16", "--int8"] {
        let bench = bench();
        bench.build(&[precision, "--io", "fp16", "--calibration", "good", "-o", "x.edge"]).ends_with(0);
        let inspected = bench.edge_build(&["inspect", "--json", "x.edge"]).ends_with(0);
        assert_eq!(value(inspected.data.as_bytes(), "/manifest/input/element"), "f16", "{precision}");
        bench.edge_build(&["verify", "x.edge"]).ends_with(0);
    }
    bench().build(&["--fp16", "--io", "int8"]).ends_with(2);
}

/// For a GPU what is not in 8 bits is half: the decision stands in the bundle, the gate judged half arithmetic.
#[test]
fn int8_for_a_gpu_computes_the_rest_in_half() {
    let bench = bench();
    let build = |target: &[&str]| {
        let flags = ["model.onnx", "--names", "names.txt", "--cpu-backend", "rten", "-o", "x.edge"];
        let asked = ["--int8", "--calibration", "good"];
        bench.edge_build(&[&flags[..], &asked[..], target].concat()).ends_with(0);
        let inspected = bench.edge_build(&["inspect", "--json", "x.edge"]).ends_with(0);
        (
            value(inspected.data.as_bytes(), "/manifest/precision/found"),
            value(inspected.data.as_bytes(), "/manifest/gate/judged"),
        )
    };
    let (found, judged) = build(&["--target", "cpu"]);
    assert_eq!((&found["int8"], &found["f32"], judged.as_str()), (&1.into(), &2.into(), Some("graph")));
    let (found, judged) = build(&["--target", "orin-nano-8gb", "--portable"]);
    assert_eq!(
        (&found["int8"], &found["f16"], judged.as_str()),
        (&1.into(), &2.into(), Some("graph in half arithmetic"))
    );
}

/// Where INT8 goes is the user's: by flag and by recipe, told in the bundle.
#[test]
fn int8_goes_where_the_rules_say() {
    let bench = bench();
    let gpu = ["--target", "orin-nano-8gb", "--portable"];
    let cpu = ["--target", "cpu"];
    let about = |flags: &[&str]| {
        let usual = ["model.onnx", "--names", "names.txt", "--cpu-backend", "rten", "-o", "x.edge"];
        let asked = ["--int8", "--calibration", "good"];
        let built = bench.edge_build(&[&usual[..], &asked[..], flags].concat()).ends_with(0);
        let inspected = bench.edge_build(&["inspect", "--json", "x.edge"]).ends_with(0);
        let decided = value(inspected.data.as_bytes(), "/manifest/decided").to_string();
        (value(inspected.data.as_bytes(), "/manifest/precision/found"), decided, built.people)
    };
    let (found, decided, _) = about(&[&gpu[..], &["--int8-rest", "float"]].concat());
    assert_eq!((&found["int8"], &found["f32"]), (&1.into(), &2.into()), "{found}");
    assert!(decided.contains("what is not in INT8 computes in float"), "{decided}");
    assert!(decided.contains("1 stay out of INT8 (fewer than 32 channels): second"), "{decided}");
    let (found, _, _) = about(&[&gpu[..], &["--int8-few-channels", "0"]].concat());
    assert_eq!((&found["int8"], &found["f16"]), (&2.into(), &1.into()), "{found}");
    let (found, decided, _) = about(&[&cpu[..], &["--int8-rest", "half", "--int8-first", "yes"]].concat());
    assert_eq!((&found["int8"], &found["f16"]), (&2.into(), &1.into()), "{found}");
    assert!(decided.contains("what is not in INT8 computes in half") && !decided.contains("the picture itself"));
    bench.edge_build(&["verify", "x.edge"]).ends_with(0);
    let (_, decided, _) = about(&[&cpu[..], &["--int8-first", "yes", "--int8-head-inputs", "yes"]].concat());
    assert!(decided.contains("reads the picture in steps of 1/127"), "{decided}");
    // Nothing that is to be read in 8 bits there is an activation.
    assert!(!decided.contains("out of INT8 read 8 bits"), "{decided}");
    bench.edge_build(&["verify", "x.edge"]).ends_with(0);
    let (found, decided, people) = about(&[&cpu[..], &["--int8-first", "yes", "--int8-keep", "second"]].concat());
    assert!(people.contains("building again: `recipe.int8`"), "the rules are part of the key: {people}");
    assert_eq!((&found["int8"], &found["f32"]), (&1.into(), &2.into()), "{found}");
    assert!(decided.contains("1 stay out of INT8 (kept by the recipe): second"), "{decided}");
    let report = bench.read("x.report.json");
    let layers = String::from_utf8_lossy(&report);
    assert!(layers.contains("kept by the recipe"), "{layers}");

    bench.write(
        "recipe.toml",
        b"model = 'model.onnx'\ntarget = 'cpu'\nprecision = 'int8'\ncalibration = 'good'\n[int8]\nfirst = true\nkeep = ['second']",
    );
    let recipe = ["recipe.toml", "--names", "names.txt", "--cpu-backend", "rten", "-o", "x.edge"];
    let again = bench.edge_build(&[&recipe[..], &["--name", "x", "--json"]].concat()).ends_with(0);
    assert!(again.data.contains("\"rebuilt\":false"), "the same rules from a recipe: {} {}", again.data, again.people);
    bench.edge_build(&[&recipe[..], &["--fp16"]].concat()).ends_with(0);
}

#[test]
fn rules_for_int8_that_cannot_be_meant_are_usage_errors() {
    let bench = bench();
    let int8 = ["--int8", "--calibration", "good", "-o", "x.edge"];
    let refused = |flags: &[&str], words: &[&str]| {
        bench.build(&[&int8[..], flags].concat()).ends_with(2).says_one_error(words);
    };
    refused(&["--int8-keep", "second,secnd"], &["no convolution for `secnd`", "closest is `second`", "int8.keep"]);
    refused(&["--int8-rest", "float", "--io", "fp16"], &["rest in float with inputs and outputs in fp16"]);
    for flags in [["--int8-rest", "bf16"], ["--int8-first", "maybe"], ["--int8-few-channels", "-1"]] {
        bench.build(&[&int8[..], &flags].concat()).ends_with(2);
    }
    for other in [&["--fp16"][..], &[]] {
        bench
            .build(&[other, &["--int8-depthwise", "no", "-o", "x.edge"]].concat())
            .ends_with(2)
            .says_one_error(&["rules for INT8 with the precision", "--int8"]);
    }
    // All that could be in INT8 is kept out of it.
    let all = [&int8[..], &["--int8-keep", "second"]].concat();
    bench.build(&all).ends_with(3).says_one_error(&["no convolution that can be stored in 8 bits"]);
    assert!(!bench.names().iter().any(|name| name.starts_with("x.")), "{:?}", bench.names());
}

/// ONNX Runtime refuses such a graph (seen with 1.32): building and running go on with rten and say so; asked for alone, it is an error.
#[test]
fn a_graph_that_onnx_runtime_refuses_runs_on_rten_with_a_warning() {
    let Some(library) = std::env::var_os("EDGE_ORT_LIB") else {
        return crate::common::lacks("onnxruntime", "ONNX Runtime (EDGE_ORT_LIB)");
    };
    let bench = Bench::new();
    bench.write("model.onnx", &graphs::half_scales_around_a_concatenation());
    bench.pictures("val", 2);
    let run = |program: &str, arguments: &[&str]| -> crate::workbench::Ran {
        bench.command(std::path::Path::new(program), arguments).env("EDGE_ORT_LIB", &library).output().unwrap().into()
    };
    let build = ["model.onnx", "--names", "names.txt", "--target", "cpu", "--golden", "val", "-o", "x.edge"];
    run(edge_build(), &[&build[..], &["--cpu-backend", "onnxruntime"]].concat())
        .ends_with(3)
        .says_one_error(&["QLinearConcat"]);
    let built = run(edge_build(), &build).ends_with(0);
    let start = ["--engine", "x.edge", "--source", "val", "--state", "state"];
    let ran = run(edge_run(), &[&start[..], &["--output", "rows.jsonl"]].concat()).ends_with(0);
    for people in [&built.people, &ran.people] {
        assert!(people.contains("onnxruntime refused the model, rten runs it"), "{people}");
        assert!(people.contains("rten 0."), "{people}");
    }
    let alone = [&start[..], &["--cpu-backend", "onnxruntime", "--output", "none.jsonl"]].concat();
    run(edge_run(), &alone).ends_with(3).says_one_error(&["QLinearConcat"]);
}
