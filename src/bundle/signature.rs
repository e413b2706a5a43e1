//! Signatures: Ed25519 over `manifest.json`, and over `plans/NAME.json` for each plan.
//!
//! The manifest holds the hash of every other entry, a plan's JSON that of its plan, so these two cover the whole file. Keys
//! are PEM files as OpenSSL writes them: `openssl genpkey -algorithm ed25519 -out line.key` and
//! `openssl pkey -in line.key -pubout -out line.pub`. The entry is the 64 bytes of the signature, so
//! `openssl pkeyutl -verify -rawin` can check it too.

use super::{Bundle, Files, SIGNATURE};
use crate::error::{Error, Result};
use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use std::path::Path;

/// A key that signs.
pub struct PrivateKey(SigningKey);

/// A key that bundles are checked with.
#[derive(Debug, Clone)]
pub struct PublicKey(VerifyingKey);

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Error::usage("the key cannot be read").because(error).at(path.display()))
}

impl PrivateKey {
    /// From a PEM file (PKCS #8).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] when it cannot be read or is no private Ed25519 key.
    pub fn read(path: &Path) -> Result<Self> {
        SigningKey::from_pkcs8_pem(&read(path)?).map(PrivateKey).map_err(|_| {
            Error::usage("found something else, expected a private Ed25519 key as PEM")
                .at(path.display())
                .hint("make one with `openssl genpkey -algorithm ed25519 -out line.key`")
        })
    }

    /// The signatures of `bundle`, as entries to add.
    ///
    /// # Errors
    /// When a plan's facts cannot be read.
    pub fn sign(&self, bundle: &Bundle) -> Result<Files> {
        let mut entries = Files::new();
        entries.insert(SIGNATURE.to_owned(), self.0.sign(bundle.manifest_bytes()).to_bytes().to_vec());
        for name in bundle.plan_names() {
            bundle.plan(name)?;
            let facts = bundle.read(&format!("plans/{name}.json"))?;
            entries.insert(format!("plans/{name}.signature"), self.0.sign(&facts).to_bytes().to_vec());
        }
        Ok(entries)
    }
}

impl PublicKey {
    /// From a PEM file (SubjectPublicKeyInfo).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] when it cannot be read or is no public Ed25519 key.
    pub fn read(path: &Path) -> Result<Self> {
        VerifyingKey::from_public_key_pem(&read(path)?).map(PublicKey).map_err(|_| {
            Error::usage("found something else, expected a public Ed25519 key as PEM")
                .at(path.display())
                .hint("make it with `openssl pkey -in line.key -pubout -out line.pub`")
        })
    }

    /// Checks that the holder of the private key has signed `bundle` and every plan in it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] for a missing or wrong signature.
    pub fn check(&self, bundle: &Bundle) -> Result<()> {
        self.check_entry(bundle, SIGNATURE, bundle.manifest_bytes())?;
        for name in bundle.plan_names() {
            let facts = bundle.read(&format!("plans/{name}.json"))?;
            self.check_entry(bundle, &format!("plans/{name}.signature"), &facts)?;
        }
        Ok(())
    }

    fn check_entry(&self, bundle: &Bundle, entry: &str, signed: &[u8]) -> Result<()> {
        let refused = |message: &str| {
            Err(Error::refused(message)
                .at(bundle.place(entry))
                .hint("only bundles signed with the trusted key are run: `edge-build sign NAME.edge --key line.key`"))
        };
        if bundle.entry_range(entry).is_none() {
            return refused("found no signature, expected one, because a key is trusted");
        }
        let Ok(bytes) = <[u8; 64]>::try_from(bundle.read(entry)?.as_slice()) else {
            return refused("found a signature of another length, expected 64 bytes");
        };
        match self.0.verify_strict(signed, &Signature::from_bytes(&bytes)) {
            Ok(()) => Ok(()),
            Err(_) => refused("the signature does not belong to the trusted key"),
        }
    }
}
