//! Registries.
use crate::store::StoreConfig;

#[derive(Debug)]
pub(crate) struct Registries;
impl Registries {
    pub(crate) fn new(_config: &StoreConfig) -> Self {
        Self
    }
}
