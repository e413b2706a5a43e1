//! Who may come in: token with a limit on failures, host names, requests from other sites.

use crate::telemetry::{Labels, Metric, Telemetry};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong tokens that one address may send within [`FORGET_AFTER`] before it has to wait.
pub(super) const FAILURES_ALLOWED: u32 = 5;
const FORGET_AFTER: Duration = Duration::from_secs(60);
const ADDRESSES_KEPT: usize = 1024;

/// The name of the cookie that keeps the token for the pages.
pub(super) const COOKIE: &str = "edge_token";

/// A refusal: status and one line for people.
pub(super) type Refusal = (StatusCode, &'static str);

pub(super) struct Door {
    token: Option<[u8; 32]>,
    read_only: bool,
    loopback: bool,
    failures: Mutex<HashMap<IpAddr, (u32, Instant)>>,
    telemetry: Arc<Telemetry>,
}

impl Door {
    pub(super) fn new(token: Option<&str>, read_only: bool, loopback: bool, telemetry: Arc<Telemetry>) -> Self {
        let token = token.map(|token| Sha256::digest(token.as_bytes()).into());
        Door { token, read_only, loopback, failures: Mutex::default(), telemetry }
    }

    /// Whether the request may come in.
    pub(super) fn check(
        &self,
        peer: IpAddr,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        now: Instant,
    ) -> Result<(), Refusal> {
        self.check_host(headers)?;
        if method != Method::GET && method != Method::HEAD {
            self.check_origin(headers)?;
            if self.read_only {
                return Err(self.refused(
                    "read_only",
                    StatusCode::FORBIDDEN,
                    "this server was started with --read-only",
                ));
            }
        }
        let is_probe = matches!(uri.path(), "/livez" | "/readyz");
        match &self.token {
            Some(token) if !is_probe => self.check_token(token, peer, uri, headers, now),
            _ => Ok(()),
        }
    }

    /// On loopback without a token, a name that is not this machine's own comes from a page that rebinds its name.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if !self.loopback || self.token.is_some() {
            return Ok(());
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or(rest),
            None => host.split(':').next().unwrap_or(host),
        };
        let is_local =
            name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if is_local {
            return Ok(());
        }
        Err(self.refused("host", StatusCode::FORBIDDEN, "found another host name, expected localhost or 127.0.0.1"))
    }

    /// A page of another site may not act in the user's name.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
        let other_site = site.is_some_and(|site| site != "same-origin" && site != "none");
        let host = text(header::HOST);
        let other_origin = headers.contains_key(header::ORIGIN)
            && text(header::ORIGIN).and_then(|origin| origin.split_once("://")).map(|(_, host)| host) != host;
        if other_site || other_origin {
            return Err(self.refused("cross_origin", StatusCode::FORBIDDEN, "requests from other sites are refused"));
        }
        Ok(())
    }

    fn check_token(
        &self,
        token: &[u8; 32],
        peer: IpAddr,
        uri: &Uri,
        headers: &HeaderMap,
        now: Instant,
    ) -> Result<(), Refusal> {
        let peer = network_of(peer);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, since)) = failures.get(&peer)
            && now.saturating_duration_since(*since) > FORGET_AFTER
        {
            failures.remove(&peer);
        }
        if failures.get(&peer).is_some_and(|(count, _)| *count >= FAILURES_ALLOWED) {
            let text = "too many wrong tokens from this address: wait a minute";
            return Err(self.refused("rate_limited", StatusCode::TOO_MANY_REQUESTS, text));
        }
        let Some(given) = token_of(uri, headers) else {
            let text = "a token is needed: open /?token=TOKEN once, or send the header `Authorization: Bearer TOKEN`";
            return Err(self.refused("token_missing", StatusCode::UNAUTHORIZED, text));
        };
        if is_same(token, &given) {
            failures.remove(&peer);
            return Ok(());
        }
        if failures.len() >= ADDRESSES_KEPT && !failures.contains_key(&peer) {
            let oldest = failures.iter().min_by_key(|(_, (_, since))| *since).map(|(address, _)| *address);
            oldest.map(|address| failures.remove(&address));
        }
        failures.entry(peer).or_insert((0, now)).0 += 1;
        Err(self.refused("token_wrong", StatusCode::UNAUTHORIZED, "the token is wrong"))
    }

    fn refused(&self, reason: &'static str, status: StatusCode, text: &'static str) -> Refusal {
        self.telemetry.count(Metric::HttpRefused, Labels::reason(reason));
        (status, text)
    }
}

/// An IPv6 user owns a whole network of addresses: failures are counted by the first 64 bits.
fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        address => address,
    }
}

fn token_of(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(token) = authorization.and_then(|value| value.strip_prefix("Bearer ")) {
        return Some(token.trim().to_owned());
    }
    if let Some(token) = query_token(uri) {
        return Some(token);
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value.to_owned())
}

/// The token in the address. Tokens are plain (see [`super::HttpOptions::token`]), so nothing is to be decoded.
pub(super) fn query_token(uri: &Uri) -> Option<String> {
    let mut pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == "token").map(|(_, value)| value.to_owned())
}

/// Compares digests without an early end, so that the time taken says nothing about the token.
fn is_same(expected: &[u8; 32], given: &str) -> bool {
    let given: [u8; 32] = Sha256::digest(given.as_bytes()).into();
    all_same(expected.iter().zip(&given))
}

/// Looks at every pair, whatever the first ones were.
fn all_same<'a>(pairs: impl Iterator<Item = (&'a u8, &'a u8)>) -> bool {
    std::hint::black_box(pairs.fold(0, |different, (a, b)| different | (a ^ b))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    fn ask(door: &Door, method: Method, uri: &str, pairs: &[(&'static str, &str)]) -> u16 {
        let peer = "10.0.0.7".parse().unwrap();
        match door.check(peer, &method, &uri.parse().unwrap(), &headers(pairs), Instant::now()) {
            Ok(()) => 200,
            Err((status, _)) => status.as_u16(),
        }
    }

    #[test]
    fn loopback_takes_own_names_only() {
        let door = Door::new(None, false, true, Telemetry::new());
        for (host, status) in [
            ("localhost:8080", 200),
            ("127.0.0.1:8080", 200),
            ("[::1]:8080", 200),
            ("LOCALHOST", 200),
            ("evil.example:8080", 403),
            ("localhost.evil.example", 403),
            ("10.0.0.1", 403),
        ] {
            assert_eq!(ask(&door, Method::GET, "/", &[("host", host)]), status, "{host}");
        }
    }

    #[test]
    fn other_sites_cannot_trigger() {
        let door = Door::new(None, false, true, Telemetry::new());
        let host = ("host", "localhost:8080");
        for (pair, status) in [
            (("origin", "http://localhost:8080"), 200),
            (("origin", "http://evil.example"), 403),
            (("origin", "null"), 403),
            (("sec-fetch-site", "same-origin"), 200),
            (("sec-fetch-site", "cross-site"), 403),
            (("x-nothing", "curl"), 200),
        ] {
            assert_eq!(ask(&door, Method::POST, "/trigger", &[host, pair]), status, "{pair:?}");
        }
    }

    #[test]
    fn read_only_takes_no_post() {
        let door = Door::new(None, true, false, Telemetry::new());
        assert_eq!(ask(&door, Method::GET, "/", &[("host", "line7:8080")]), 200);
        assert_eq!(ask(&door, Method::POST, "/trigger", &[("host", "line7:8080")]), 403);
    }

    #[test]
    fn tokens_are_compared_to_the_end_wherever_they_differ() {
        let expected: [u8; 32] = Sha256::digest(b"open-sesame-1").into();
        for differs_at in [None, Some(0), Some(15), Some(31)] {
            let mut given = expected;
            differs_at.into_iter().for_each(|at: usize| given[at] ^= 0x10);
            let mut looked_at = 0;
            let same = all_same(expected.iter().zip(&given).inspect(|_| looked_at += 1));
            assert_eq!((same, looked_at), (differs_at.is_none(), 32), "{differs_at:?}");
        }
        assert!(is_same(&expected, "open-sesame-1"));
        for wrong in ["", "open-sesame-", "open-sesame-12", "Open-sesame-1"] {
            assert!(!is_same(&expected, wrong), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_asked_for_and_guessing_is_slow() {
        let telemetry = Telemetry::new();
        let door = Door::new(Some("correct-horse"), false, false, Arc::clone(&telemetry));
        assert_eq!(ask(&door, Method::GET, "/", &[]), 401);
        assert_eq!(ask(&door, Method::GET, "/livez", &[]), 200);
        assert_eq!(ask(&door, Method::GET, "/?token=correct-horse", &[]), 200);
        assert_eq!(ask(&door, Method::GET, "/", &[("cookie", "a=b; edge_token=correct-horse")]), 200);
        let right = [("authorization", "Bearer correct-horse")];
        assert_eq!(ask(&door, Method::POST, "/trigger", &right), 200);
        for _ in 0..FAILURES_ALLOWED {
            assert_eq!(ask(&door, Method::GET, "/?token=correct-horsf", &[]), 401);
        }
        assert_eq!(ask(&door, Method::GET, "/", &right), 429);
        let later = Instant::now() + FORGET_AFTER + Duration::from_secs(1);
        let peer = "10.0.0.7".parse().unwrap();
        assert!(door.check(peer, &Method::GET, &"/".parse().unwrap(), &headers(&right), later).is_ok());
        assert_eq!(telemetry.total(Metric::HttpRefused, Labels::reason("rate_limited")), 1);
    }

    #[test]
    fn failures_are_kept_for_a_bounded_number_of_addresses() {
        let door = Door::new(Some("correct-horse"), false, false, Telemetry::new());
        for address in 0..4000_u32 {
            let peer = IpAddr::from((0x0a00_0000 + address).to_be_bytes());
            let _ = door.check(peer, &Method::GET, &"/?token=x".parse().unwrap(), &HeaderMap::new(), Instant::now());
        }
        assert!(door.failures.lock().unwrap().len() <= ADDRESSES_KEPT);
    }
}
