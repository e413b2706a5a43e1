//! The other devices: which one serves, which engines stand by, and how the run goes from one to the other.

use super::{Service, short};
use crate::bundle::Bundle;
use crate::bundle::golden::Prover;
use crate::error::{Error, ErrorKind, Result};
use crate::run::host::Host;
use crate::run::inspector::Inspector;
use crate::run::keeper::{Job, Keeper, Standing};
use crate::run::ready::Ready;
use crate::run::source::EngineSource;
use crate::run::{Options, Say, Shared};
use crate::sinks::http::{DeviceState, DeviceView};
use crate::telemetry::{Labels, Metric, Telemetry};
use crate::units::length;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How engines on other devices are looked after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandbyLimits {
    /// Pause before a failed device is tried again; it doubles with each attempt that fails.
    pub retry_after: Duration,
    /// The longest pause.
    pub retry_at_most: Duration,
}

impl Default for StandbyLimits {
    fn default() -> Self {
        StandbyLimits { retry_after: Duration::from_secs(2), retry_at_most: Duration::from_secs(300) }
    }
}

/// How long the end of the run waits for engines that stand by.
const END_LIMIT: Duration = Duration::from_secs(5);
/// With an engine standing by, a call beyond its limit is given this long to come back.
pub(super) const PATIENCE_WITH_STANDBY: Duration = Duration::from_secs(1);

/// One device that does not serve.
struct Other {
    device: usize,
    keeper: Keeper,
    tried: Option<Instant>,
}

/// The devices that do not serve.
pub(in crate::run) struct Standbys {
    source: Arc<dyn EngineSource>,
    options: Options,
    telemetry: Arc<Telemetry>,
    others: Vec<Other>,
}

impl Standbys {
    /// Begins to bring an engine up on every device but `serving`. `failed` are devices on which the start has failed.
    ///
    /// # Errors
    /// As [`Keeper::start`].
    pub(in crate::run) fn start(shared: &Shared<'_>, bundle: &Arc<Bundle>, serving: usize) -> Result<Standbys> {
        let mut standbys = Standbys {
            source: Arc::clone(&shared.source),
            options: shared.options.clone(),
            telemetry: Arc::clone(&shared.telemetry),
            others: Vec::new(),
        };
        for device in (0..standbys.source.devices()).filter(|device| *device != serving) {
            standbys.look_after(device, bundle, None, None)?;
        }
        Ok(standbys)
    }

    /// Waits for the first attempt on each, and says how it ended.
    pub(in crate::run) fn settle(&self, tick: &dyn Fn(), say: Say<'_>) {
        for other in &self.others {
            other.keeper.settle(tick);
            match other.keeper.look() {
                (Standing::Down(why), ..) => say(&format!(
                    "device {} does NOT stand by: {why}; it is tried again while the line runs",
                    self.source.device_label(other.device)
                )),
                (_, _, line) => say(&line),
            }
        }
    }

    /// Engines that are warm and proved.
    pub(super) fn warm(&self) -> usize {
        self.others.iter().filter(|other| is_warm(&other.keeper.look().0)).count()
    }

    /// The engine of the device that can serve soonest.
    fn take(&mut self, tick: &dyn Fn()) -> Result<(usize, Ready)> {
        let soonest = self.others.iter_mut().min_by_key(|other| (rank(&other.keeper.look().0), other.tried));
        let Some(other) = soonest else {
            return Err(Error::new(ErrorKind::Device, "no other device stands by"));
        };
        other.tried = Some(Instant::now());
        let device = other.device;
        let ready = other.keeper.take(tick).map_err(|error| {
            Error::new(
                ErrorKind::Device,
                format!("device {} cannot serve: {}", self.source.device_label(device), error.message()),
            )
        })?;
        self.others.retain(|other| other.device != device);
        Ok((device, ready))
    }

    fn look_after(
        &mut self,
        device: usize,
        bundle: &Arc<Bundle>,
        failed: Option<(Host, Prover)>,
        before: Option<JoinHandle<()>>,
    ) -> Result<()> {
        let keeper = Keeper::start(Job {
            source: Arc::clone(&self.source),
            options: self.options.clone(),
            bundle: Arc::clone(bundle),
            device,
            telemetry: Arc::clone(&self.telemetry),
            failed,
            before,
        })?;
        self.others.push(Other { device, keeper, tried: None });
        Ok(())
    }

    /// Another bundle serves: engines of the one before are no use.
    fn bundle_changed(&mut self, bundle: &Arc<Bundle>) {
        for other in std::mem::take(&mut self.others) {
            let before = other.keeper.close();
            if let Err(error) = self.look_after(other.device, bundle, None, before) {
                log::error!("device {} does not stand by: {error}", self.source.device_label(other.device));
            }
        }
    }

    fn distrust(&self, device: usize, why: &str) {
        if let Some(other) = self.others.iter().find(|other| other.device == device) {
            other.keeper.distrust(why);
        }
    }
}

impl Drop for Standbys {
    fn drop(&mut self) {
        let threads: Vec<_> = self.others.drain(..).filter_map(|other| other.keeper.close()).collect();
        let since = Instant::now();
        while since.elapsed() < END_LIMIT && threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn is_warm(standing: &Standing) -> bool {
    matches!(standing, Standing::Warm | Standing::Proving)
}

fn rank(standing: &Standing) -> u8 {
    match standing {
        Standing::Warm => 0,
        Standing::Proving => 1,
        Standing::Loading => 2,
        Standing::Down(_) | Standing::Taken => 3,
    }
}

impl Service<'_> {
    /// Goes on with another device. The failed one is closed and brought back on a thread of its own.
    pub(super) fn go_to_standby(&mut self, inspector: &mut Inspector) -> Result<()> {
        let board = Arc::clone(&self.board);
        let (device, ready) = self.standbys.take(&|| board.heartbeat())?;
        let failed = std::mem::replace(&mut self.device, device);
        self.known.device = device;
        self.abandon_reload("the device has changed");
        let bundle = Arc::clone(&self.bundle);
        let other_bundle = ready.bundle.id() != bundle.id();
        let failed_engine = self.install(inspector, ready)?;
        if other_bundle {
            log::warn!("recovery: the other device goes on with bundle {}", short(self.bundle.id()));
        }
        let to = self.source.device_label(device);
        log::warn!("recovery: device {to} goes on in place of device {}", self.source.device_label(failed));
        self.telemetry.count(Metric::DeviceChanges, Labels::reason(&to));
        let bundle = Arc::clone(&self.bundle);
        let known = Some(failed_engine);
        if let Err(error) = self.standbys.look_after(failed, &bundle, known, None) {
            log::error!("device {} is not brought back: {error}", self.source.device_label(failed));
        }
        self.looked_at_devices = None;
        Ok(())
    }

    /// How long a call beyond its limit is waited for.
    pub(super) fn patience(&self) -> Duration {
        let patience = self.options.service.patience;
        if self.standbys.warm() > 0 { patience.min(PATIENCE_WITH_STANDBY) } else { patience }
    }

    /// After another bundle was put in place.
    pub(super) fn standbys_follow(&mut self) {
        let bundle = Arc::clone(&self.bundle);
        self.standbys.bundle_changed(&bundle);
    }

    /// What the driver says of a device that does not serve.
    pub(super) fn distrust_standby(&self, device: usize, why: &str) {
        self.standbys.distrust(device, why);
    }

    /// Tells pages and metrics which device serves and what stands by; once a second, and after a change.
    pub(super) fn show_devices(&mut self) {
        const EVERY: Duration = Duration::from_secs(1);
        if self.source.devices() < 2 || self.looked_at_devices.is_some_and(|looked| looked.elapsed() < EVERY) {
            return;
        }
        self.looked_at_devices = Some(Instant::now());
        self.telemetry.gauge(Metric::StandbysReady, self.labels()).set(length(self.standbys.warm()));
        let view = |device: usize, role: &'static str, why: Option<String>, proved_at: Option<SystemTime>| {
            let figures = self.source.device_figures(device);
            let state = figures.map_or_else(DeviceState::default, |figures| DeviceState {
                used_bytes: Some(figures.used.0),
                total_bytes: Some(figures.total.0),
                own_bytes: figures.own.map(|own| own.0),
                temperature_celsius: figures.temperature_celsius,
            });
            DeviceView::new(self.source.device_label(device), role, why, proved_at, state)
        };
        let mut views = vec![(self.device, view(self.device, "serving", None, self.present.proved_at()))];
        for other in &self.standbys.others {
            let (standing, proved_at, _) = other.keeper.look();
            let (role, why) = match standing {
                Standing::Warm | Standing::Proving | Standing::Taken => ("standby", None),
                Standing::Loading => ("loading", None),
                Standing::Down(why) => ("down", Some(why)),
            };
            views.push((other.device, view(other.device, role, why, proved_at)));
        }
        views.sort_by_key(|(device, _)| *device);
        self.board.show_devices(views.into_iter().map(|(_, view)| view).collect());
    }
}
