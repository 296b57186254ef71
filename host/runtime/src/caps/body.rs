//! One function's code.

use wasmparser::{
    BlockType, BrTable, FunctionBody, OperatorsReader, OperatorsReaderAllocations, VisitOperator, VisitSimdOperator,
    for_each_visit_operator, for_each_visit_simd_operator,
};

use super::{CapError, Pass, add, at_most};

impl Pass<'_> {
    /// `allocations` are for the next function to use again.
    pub(super) fn body(
        &mut self,
        function: &FunctionBody<'_>,
        allocations: OperatorsReaderAllocations,
    ) -> Result<OperatorsReaderAllocations, CapError> {
        let caps = self.caps;
        at_most("bytes of a function", function.range().len() as u64, caps.function_bytes)?;
        let mut locals = 0_u64;
        let mut groups = function.get_locals_reader()?;
        for _ in 0..groups.get_count() {
            add(&mut locals, groups.read()?.0.into(), "locals of a function", caps.locals)?;
        }
        let mut figures = Figures::default();
        let mut operators = OperatorsReader::new_with_allocs(function.get_binary_reader_for_operators()?, allocations);
        while !operators.eof() {
            operators.visit_operator(&mut figures)?;
        }
        at_most("blocks inside of blocks", figures.deepest, caps.nesting)?;
        at_most("blocks with parameters in a function", figures.typed_blocks, caps.typed_blocks)?;
        at_most("targets of a br_table", figures.widest, caps.table_targets)?;
        add(&mut self.sums.table_targets, figures.targets, "targets of br_tables", caps.all_table_targets)?;
        let product = locals.saturating_mul(figures.blocks);
        at_most("locals times blocks of a function", product, caps.locals_by_blocks)?;
        let sum = &mut self.sums.locals_by_blocks;
        let limit = caps.all_locals_by_blocks;
        add(sum, product, "locals times blocks of all functions", limit)?;
        Ok(operators.into_allocations())
    }
}

#[derive(Default)]
struct Figures {
    blocks: u64,
    typed_blocks: u64,
    depth: u64,
    deepest: u64,
    targets: u64,
    widest: u64,
}

impl Figures {
    fn block(&mut self, block: BlockType) {
        self.blocks += 1;
        self.typed_blocks += u64::from(matches!(block, BlockType::FuncType(_)));
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
    }
}

/// Every operator is passed over, except those that open and close blocks and those that branch to many.
macro_rules! figures {
    ($(@$proposal:ident $op:ident $({ $($arg:ident: $argty:ty),* })? => $visit:ident ($($ann:tt)*))*) => {
        $( figures!(@one $visit $($($arg: $argty),*)?); )*
    };
    (@one visit_block $($rest:tt)*) => { fn visit_block(&mut self, block: BlockType) { self.block(block) } };
    (@one visit_loop $($rest:tt)*) => { fn visit_loop(&mut self, block: BlockType) { self.block(block) } };
    (@one visit_if $($rest:tt)*) => { fn visit_if(&mut self, block: BlockType) { self.block(block) } };
    (@one visit_end $($rest:tt)*) => { fn visit_end(&mut self) { self.depth = self.depth.saturating_sub(1) } };
    (@one visit_br_table $($rest:tt)*) => {
        fn visit_br_table(&mut self, table: BrTable<'a>) {
            let targets = table.len().into();
            self.targets += targets;
            self.widest = self.widest.max(targets);
        }
    };
    (@one $visit:ident $($arg:ident: $argty:ty),*) => { fn $visit(&mut self $(, _: $argty)*) {} };
}

impl<'a> VisitOperator<'a> for Figures {
    type Output = ();

    fn simd_visitor(&mut self) -> Option<&mut dyn VisitSimdOperator<'a, Output = ()>> {
        Some(self)
    }

    for_each_visit_operator!(figures);
}

impl<'a> VisitSimdOperator<'a> for Figures {
    for_each_visit_simd_operator!(figures);
}
