//! Shapes that leave the process and come back: as the keys of their parts, and proven anew by one Pod that has them.

use std::{hash::BuildHasher, sync::Arc};

use super::{
    Identity, Shape, Shapes,
    packed::split,
    part,
    pieces::Text,
    scan::{OUTER, PARTS, SPEC, STATUS},
};

impl Shape {
    /// The keys of the parts, each with what tells it from others for as long as this shape lives. None of a Pod that
    /// is kept undivided.
    pub(crate) fn keys(&self) -> Option<[(usize, &Text); PARTS]> {
        if self.parts[OUTER].is_whole {
            return None;
        }
        Some(self.parts.each_ref().map(|part| (Arc::as_ptr(part).addr(), &part.key)))
    }

    /// True when these can be the own values of a Pod of this shape.
    pub(crate) fn fits(&self, own: &[u8], identity: Identity<'_>) -> bool {
        let Some(own) = split(own) else { return false };
        self.parts.iter().zip(own).all(|(part, own)| part.values(own, identity).is_some())
    }
}

impl Shapes {
    /// The shape of these keys, which a Pod with these own values has. None where they make no Pod.
    pub(crate) fn restore(&self, keys: [&[u8]; PARTS], own: &[u8], identity: Identity<'_>) -> Option<Arc<Shape>> {
        let own = split(own)?;
        let mut parts = Vec::with_capacity(PARTS);
        for part in [OUTER, SPEC, STATUS] {
            let hash = self.hasher.hash_one(keys[part]);
            let known = self.table.lock().known(part, hash, keys[part]);
            parts.push(match known {
                Some(known) => known,
                None => {
                    let built = part::build(part, keys[part], own[part], identity)?;
                    self.table.lock().add(part, hash, built, keys[part])
                }
            });
        }
        Some(self.table.lock().shape(parts.try_into().ok()?))
    }
}
