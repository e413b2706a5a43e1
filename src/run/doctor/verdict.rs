//! Whether this machine can run what is asked for, and if not, all the reasons at once.

use super::{Report, Request, Trouble};
use crate::bundle::Bundle;
use crate::bundle::plan::PlanFacts;
use crate::error::Result;
use crate::ffi::tensorrt::version::Flavour;
use crate::units::Bytes;
use serde::Serialize;

/// The answer for one bundle or one TensorRT family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What was asked for, as in `line1.edge`.
    pub what: String,
    /// Whether it can run here.
    pub can_run: bool,
    /// What runs it, as in `plan trt10-10.3.0-cc8.7`.
    pub by: Option<String>,
    /// Why it cannot.
    pub reasons: Vec<Trouble>,
}

/// The verdict on what `request` names; `None` when it names nothing.
pub(super) fn of(request: &Request, report: &Report) -> Result<Option<Verdict>> {
    match (&request.engine, request.flavour) {
        (Some(path), _) => {
            let bundle = Bundle::open(path)?;
            let plans: Vec<PlanFacts> =
                bundle.plan_names().map(|name| bundle.plan_facts(name)).collect::<Result<_>>()?;
            let target = &bundle.manifest().target;
            let wanted = Wanted { path: path.display().to_string(), flavour: &target.flavour, budget: target.budget };
            Ok(Some(wanted.judge(&plans, report)))
        }
        (None, Some(flavour)) => {
            let mut reasons = vec![];
            reasons.extend(report.driver.missing.clone());
            reasons.extend(library_missing(flavour, report));
            let by = flavour.product().to_owned();
            Ok(Some(verdict(flavour.name().to_owned(), by, reasons)))
        }
        (None, None) => Ok(None),
    }
}

fn verdict(what: String, by: String, reasons: Vec<Trouble>) -> Verdict {
    let can_run = reasons.is_empty();
    Verdict { what, can_run, by: can_run.then_some(by), reasons }
}

fn trouble(what: String, way_out: &str) -> Trouble {
    Trouble { what, way_out: Some(way_out.to_owned()) }
}

fn library_missing(flavour: Flavour, report: &Report) -> Option<Trouble> {
    report.libraries.iter().find(|library| library.name == flavour.product())?.missing.clone()
}

/// What a bundle's manifest asks for.
struct Wanted<'a> {
    path: String,
    flavour: &'a str,
    budget: Option<Bytes>,
}

impl Wanted<'_> {
    fn judge(&self, plans: &[PlanFacts], report: &Report) -> Verdict {
        if self.flavour == "cpu" {
            return verdict(self.path.clone(), "the CPU engine".to_owned(), vec![]);
        }
        let mut reasons = vec![];
        reasons.extend(report.driver.missing.clone());
        reasons.extend(self.memory(report));
        if plans.is_empty() {
            let way_out = format!("on the device: `edge-build finish {}`", self.path);
            reasons.push(trouble("the bundle holds no plan yet".to_owned(), &way_out));
        }
        let mut fitting = None;
        let mut unfit = vec![];
        for plan in plans {
            match self.unfit(plan, report) {
                None => fitting = fitting.or(Some(plan)),
                Some(reason) => unfit.push(reason),
            }
        }
        let by = fitting.map_or_else(String::new, |plan| format!("plan {}", plan.name()));
        if fitting.is_none() {
            reasons.extend(unfit);
        }
        verdict(self.path.clone(), by, reasons)
    }

    /// Why this machine cannot use a plan.
    fn unfit(&self, plan: &PlanFacts, report: &Report) -> Option<Trouble> {
        let name = plan.name();
        let again = format!("make a plan for this machine: `edge-build finish {}`", self.path);
        if plan.architecture != report.board.architecture {
            let here = report.board.architecture;
            return Some(trouble(
                format!("plan `{name}` was made on {}, expected {here} as this machine is", plan.architecture),
                &again,
            ));
        }
        let gpus = report.driver.facts.as_ref().map_or(&[][..], |driver| &driver.gpus);
        if !gpus.is_empty() && !gpus.iter().any(|gpu| gpu.compute_capability == plan.compute_capability) {
            let found: Vec<_> = gpus.iter().map(|gpu| format!("{} ({})", gpu.name, gpu.compute_capability)).collect();
            return Some(trouble(
                format!(
                    "plan `{name}` runs on compute capability {}, found {}",
                    plan.compute_capability,
                    found.join(", ")
                ),
                &again,
            ));
        }
        let Ok(flavour) = plan.flavour.parse::<Flavour>() else {
            return Some(trouble(
                format!("plan `{name}` is of the unknown family `{}`", plan.flavour),
                "a newer edge-run may know it",
            ));
        };
        if let Some(missing) = library_missing(flavour, report) {
            return Some(missing);
        }
        let libraries = report.libraries.iter().filter_map(|library| library.facts.as_ref());
        let version = libraries.into_iter().find(|facts| facts.flavour == flavour.name()).map(|facts| &facts.version);
        match version {
            Some(version) if *version != plan.tensorrt => Some(trouble(
                format!("plan `{name}` was made by {} {}, found {version}", flavour.product(), plan.tensorrt),
                &again,
            )),
            _ => None,
        }
    }

    /// The budget against what the machine has: on a shared memory what the system calls available counts too.
    fn memory(&self, report: &Report) -> Option<Trouble> {
        let budget = self.budget?;
        let gpus = &report.driver.facts.as_ref()?.gpus;
        let fits = |memory: Bytes| budget <= memory;
        if !gpus.iter().any(|gpu| fits(gpu.memory)) {
            let largest = gpus.iter().map(|gpu| gpu.memory).max()?;
            return Some(trouble(
                format!("the bundle may use {budget} of GPU memory, found {largest}"),
                "build it with a smaller `--gpu-budget`",
            ));
        }
        let free = |gpu: &super::Gpu| match (gpu.memory_free, report.board.memory_available) {
            (Some(free), Some(available)) if gpu.integrated => Some(free.min(available)),
            (free, _) => free,
        };
        if gpus.iter().any(|gpu| free(gpu).is_none_or(fits)) {
            return None;
        }
        let most = gpus.iter().filter_map(free).max()?;
        Some(trouble(
            format!("the bundle may use {budget} of GPU memory, found {most} free now"),
            "end other programs that use the GPU, or build it with a smaller `--gpu-budget`",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DriverFacts, Found, Gpu, LibraryFacts};
    use super::*;
    use crate::bundle::plan::PLAN_SCHEMA;

    fn there<T>(name: &str, facts: T) -> Found<T> {
        Found { name: name.to_owned(), facts: Some(facts), missing: None }
    }

    fn report() -> Report {
        let gpu = Gpu {
            name: "Orin".into(),
            compute_capability: "8.7".into(),
            memory: Bytes::gib(8),
            memory_free: Some(Bytes::gib(5)),
            integrated: true,
            ecc: false,
        };
        let library = LibraryFacts { flavour: "trt10", version: "10.3.0".into(), path: "/lib".into() };
        Report {
            edge_run: "0",
            board: super::super::Board {
                architecture: "aarch64",
                memory_available: Some(Bytes::gib(4)),
                ..Default::default()
            },
            driver: there("CUDA driver", DriverFacts { cuda: "12.6".into(), gpus: vec![gpu] }),
            libraries: vec![there(Flavour::Trt10.product(), library)],
            health: there("GPU health", vec![]),
            nodes: vec![],
            identity: Default::default(),
            troubles: vec![],
            asked: None,
        }
    }

    fn plan() -> PlanFacts {
        PlanFacts {
            schema: PLAN_SCHEMA,
            bundle: String::new(),
            sha256: String::new(),
            bytes: 1,
            flavour: "trt10".into(),
            tensorrt: "10.3.0".into(),
            compute_capability: "8.7".into(),
            made_on: None,
            architecture: "aarch64".into(),
            workspace: Bytes(0),
            optimization_level: None,
            tensors: vec![],
            memory: None,
            layers: None,
            gate: None,
        }
    }

    fn judge(plans: &[PlanFacts], budget: Bytes, report: &Report) -> Verdict {
        Wanted { path: "x.edge".into(), flavour: "trt10", budget: Some(budget) }.judge(plans, report)
    }

    #[test]
    fn a_plan_that_fits_is_named_even_beside_others() {
        let other = PlanFacts { compute_capability: "7.5".into(), ..plan() };
        let verdict = judge(&[other, plan()], Bytes::gib(3), &report());
        assert_eq!((verdict.can_run, verdict.by.as_deref()), (true, Some("plan trt10-10.3.0-cc8.7")));
    }

    #[test]
    fn every_mismatch_is_a_reason_with_both_sides() {
        for (plan, words) in [
            (PlanFacts { tensorrt: "10.7.0".into(), ..plan() }, ["10.7.0", "found 10.3.0"]),
            (PlanFacts { compute_capability: "7.5".into(), ..plan() }, ["7.5", "Orin (8.7)"]),
            (PlanFacts { architecture: "x86_64".into(), ..plan() }, ["x86_64", "aarch64"]),
            (PlanFacts { flavour: "trt99".into(), ..plan() }, ["unknown family", "trt99"]),
        ] {
            let verdict = judge(&[plan], Bytes::gib(3), &report());
            let said = format!("{:?}", verdict.reasons);
            assert!(!verdict.can_run && words.iter().all(|word| said.contains(word)), "{said}");
        }
        let none = judge(&[], Bytes::gib(3), &report());
        assert!(!none.can_run && none.reasons[0].way_out.as_ref().unwrap().contains("edge-build finish x.edge"));
    }

    #[test]
    fn shared_memory_counts_what_the_system_calls_available() {
        assert!(judge(&[plan()], Bytes::gib(4), &report()).can_run);
        let said = judge(&[plan()], Bytes(Bytes::gib(4).0 + 1), &report()).reasons;
        assert!(said[0].what.contains("4.0 GiB free now"), "{said:?}");
        let said = judge(&[plan()], Bytes::gib(9), &report()).reasons;
        assert!(said[0].what.contains("found 8.0 GiB"), "{said:?}");
        let mut discrete = report();
        discrete.driver.facts.as_mut().unwrap().gpus[0].integrated = false;
        assert!(judge(&[plan()], Bytes::gib(5), &discrete).can_run);
    }
}
