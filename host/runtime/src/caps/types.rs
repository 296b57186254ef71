//! Types of components. wasmparser's readers recurse into types of components and instances and collect their contents,
//! so these types are walked here, one declaration at a time.

use std::ops::Range;

use wasmparser::{
    BinaryReader, ComponentType, ComponentTypeDeclaration, CompositeInnerType, CoreType, CoreTypeSectionReader,
    FromReader, ModuleTypeDeclaration, RecGroup,
};

use super::{CapError, Pass, at_most, refuse_component};

/// The first byte of a component's type, and of an instance's.
const NESTS: [u8; 2] = [0x41, 0x42];
/// The first byte of a declaration that is a type.
const DECLARES_TYPE: u8 = 0x01;

impl Pass<'_> {
    pub(super) fn core_types(&self, group: &RecGroup) -> Result<(), CapError> {
        for of in group.types() {
            if let CompositeInnerType::Func(function) = &of.composite_type.inner {
                at_most("parameters of a function", function.params().len() as u64, self.caps.parameters)?;
                at_most("results of a function", function.results().len() as u64, self.caps.results)?;
            }
        }
        Ok(())
    }

    pub(super) fn component_core_types(&mut self, section: CoreTypeSectionReader<'_>) -> Result<(), CapError> {
        self.define(section.count())?;
        for core_type in section {
            self.core_type(&core_type?)?;
        }
        Ok(())
    }

    fn core_type(&mut self, core_type: &CoreType<'_>) -> Result<(), CapError> {
        match core_type {
            CoreType::Rec(group) => self.core_types(group),
            CoreType::Module(declarations) => {
                self.define(u32::try_from(declarations.len()).unwrap_or(u32::MAX))?;
                declarations.iter().try_for_each(|declaration| match declaration {
                    ModuleTypeDeclaration::Type(group) => self.core_types(group),
                    _ => Ok(()),
                })
            }
        }
    }

    /// The types of a section whose bytes are at `section`.
    pub(super) fn component_types(&mut self, section: Range<usize>) -> Result<(), CapError> {
        let bytes = self.wasm.get(section.clone()).unwrap_or_default();
        let mut reader = BinaryReader::new(bytes, section.start);
        let types = reader.read_var_u32()?;
        self.define(types)?;
        for _ in 0..types {
            self.component_type(&mut reader, bytes)?;
        }
        Ok(())
    }

    fn component_type(&mut self, reader: &mut BinaryReader<'_>, bytes: &[u8]) -> Result<(), CapError> {
        // How many declarations are left of each type that is open.
        let mut open = Vec::new();
        self.type_or_open(reader, bytes, &mut open)?;
        while let Some(left) = open.last_mut() {
            let Some(less) = left.checked_sub(1) else {
                open.pop();
                continue;
            };
            *left = less;
            if peek(reader, bytes) == Some(DECLARES_TYPE) {
                reader.read_u8()?;
                self.type_or_open(reader, bytes, &mut open)?;
                continue;
            }
            match ComponentTypeDeclaration::from_reader(reader)? {
                ComponentTypeDeclaration::CoreType(core_type) => self.core_type(&core_type)?,
                ComponentTypeDeclaration::Export { name, ty } => {
                    self.name(name.name)?;
                    refuse_component(ty)?;
                }
                ComponentTypeDeclaration::Import(import) => {
                    self.name(import.name.name)?;
                    refuse_component(import.ty)?;
                }
                ComponentTypeDeclaration::Type(_) | ComponentTypeDeclaration::Alias(_) => {}
            }
        }
        Ok(())
    }

    /// Reads a type that has no types inside, or opens one that has.
    fn type_or_open(
        &mut self,
        reader: &mut BinaryReader<'_>,
        bytes: &[u8],
        open: &mut Vec<u32>,
    ) -> Result<(), CapError> {
        if !peek(reader, bytes).is_some_and(|first| NESTS.contains(&first)) {
            ComponentType::from_reader(reader)?;
            return Ok(());
        }
        reader.read_u8()?;
        let declarations = reader.read_var_u32()?;
        self.define(declarations)?;
        open.push(declarations);
        at_most("types nested in types", open.len() as u64, self.caps.depth as u64)
    }
}

fn peek(reader: &BinaryReader<'_>, bytes: &[u8]) -> Option<u8> {
    bytes.get(reader.current_position()).copied()
}
