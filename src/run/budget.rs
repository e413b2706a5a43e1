//! Several engines on one device: whether they fit together, and what would when they do not.

use crate::error::{Error, ErrorKind, Result};
use crate::units::Bytes;

/// What one engine takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    /// Name of the bundle.
    pub(super) name: String,
    /// What it takes, as planned or as measured.
    pub(super) bytes: Bytes,
}

/// Whether all of `claims` fit into `budget` at once.
///
/// # Errors
/// [`ErrorKind::Budget`] with every claim, and those that fit together, taken in their order.
pub(super) fn together(claims: &[Claim], budget: Bytes) -> Result<()> {
    let total = claims.iter().fold(0_u64, |sum, claim| sum.saturating_add(claim.bytes.0));
    if total <= budget.0 {
        return Ok(());
    }
    let mut left = budget.0;
    let mut fitting: Vec<String> = Vec::new();
    for claim in claims {
        if claim.bytes.0 <= left {
            left -= claim.bytes.0;
            fitting.push(format!("`{}`", claim.name));
        }
    }
    let each: Vec<String> = claims.iter().map(|claim| format!("`{}` {}", claim.name, claim.bytes)).collect();
    let fitting = if fitting.is_empty() { "none alone".to_owned() } else { fitting.join(", ") };
    Err(Error::new(
        ErrorKind::Budget,
        format!("{} bundles take {} together, the budget is {budget}: {}", claims.len(), Bytes(total), each.join(", ")),
    )
    .hint(format!(
        "what fits: {fitting}; smaller inputs or models take less; `--gpu-budget` raises the limit of a GPU"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str, mib: u64) -> Claim {
        Claim { name: name.into(), bytes: Bytes::mib(mib) }
    }

    #[test]
    fn what_fits_is_taken_and_what_does_not_is_listed() {
        let claims = [claim("a", 300), claim("b", 500), claim("c", 200)];
        together(&claims, Bytes::mib(1000)).unwrap();
        together(&[], Bytes(0)).unwrap();
        let error = together(&claims, Bytes::mib(600)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget);
        let text = error.to_string();
        for part in ["3 bundles take 1000", "600", "`b` 500", "what fits: `a`, `c`"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(together(&claims, Bytes::mib(1)).unwrap_err().to_string().contains("none alone"));
    }
}
