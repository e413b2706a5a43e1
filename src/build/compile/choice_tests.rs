//! Which targets can be built where.

use super::*;
use crate::error::ErrorKind;

fn choose(target: &str, wishes: &Wishes) -> Result<Compiler> {
    Compiler::choose(&Platform::find(target).unwrap(), wishes)
}

fn rtx() -> Wishes {
    Wishes { flavour: Some(Flavour::Rtx), ..Wishes::default() }
}

#[test]
fn the_cpu_takes_no_flags_for_gpus() {
    assert_eq!(choose("cpu", &Wishes::default()).unwrap().flavour(), "cpu");
    assert_eq!(choose("cpu", &rtx()).unwrap_err().kind(), ErrorKind::Usage);
    let portable = Wishes { portable: true, ..Wishes::default() };
    assert_eq!(choose("cpu", &portable).unwrap_err().kind(), ErrorKind::Usage);
}

#[test]
fn rtx_plans_are_made_on_any_machine_for_the_capabilities_it_knows() {
    for (target, capability) in [("t4", 75), ("a2", 86), ("l4", 89)] {
        let Compiler::Plan(order) = choose(target, &rtx()).unwrap() else { panic!("{target}") };
        assert_eq!((order.flavour, order.compute_capability), (Flavour::Rtx, capability));
        assert_eq!(order.workspace, Bytes::gib(1));
    }
    for target in ["orin-nano-8gb", "h200", "xavier-nx"] {
        let error = choose(target, &rtx()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MachineLacks);
        assert!(error.message().contains("TensorRT-RTX does not build for compute capability"), "{error}");
    }
}

#[test]
fn targets_that_need_their_own_gpu_name_the_two_ways() {
    if Driver::load().is_ok() {
        eprintln!("NOT TESTED: this machine has a CUDA driver");
        return;
    }
    for target in ["orin-nano-8gb", "orin-nano-4gb", "agx-orin", "xavier-nx"] {
        let error = choose(target, &Wishes::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MachineLacks, "{error}");
        assert!(error.message().contains("this machine has no GPU"), "{error}");
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("`--portable`") && hint.contains("CI runner"), "{hint}");
        let portable = choose(target, &Wishes { portable: true, ..Wishes::default() }).unwrap();
        assert_eq!(portable.flavour(), "any");
    }
    let Compiler::Plan(order) = choose("t4", &Wishes::default()).unwrap() else { panic!() };
    assert_eq!(order.flavour, Flavour::Rtx, "the only family of a T4 that can be built without one");
}

#[test]
fn a_capability_alone_needs_a_budget_and_budgets_are_held() {
    let error = choose("8.0", &rtx()).unwrap_err();
    assert!(error.hint_text().unwrap().contains("--gpu-budget"), "{error}");
    let given = Wishes { gpu_budget: Some(Bytes::gib(1)), ..rtx() };
    let Compiler::Plan(order) = choose("8.0", &given).unwrap() else { panic!() };
    assert_eq!((order.compute_capability, order.workspace), (80, Bytes::mib(512)));
    let too_much = Wishes { gpu_budget: Some(Bytes::gib(100)), ..rtx() };
    assert!(choose("a2", &too_much).unwrap_err().message().contains("expected at most the 16.0 GiB"));
    let too_much = Wishes { workspace: Some(Bytes::gib(2)), ..given };
    assert!(choose("8.0", &too_much).unwrap_err().message().contains("expected at most the budget"));
    assert!(Platform::find("8.x").is_err());
}
