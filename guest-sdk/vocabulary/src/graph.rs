//! The order of plugins that run after each other, as a graph whose nodes are numbered from 0.

/// Returns the strongly connected components in an order in which each is behind those that its edges lead to (Tarjan's
/// algorithm). The edges of a node are asked for once, and the time is linear in nodes and edges. Edges to numbers that
/// are no nodes are ignored.
pub fn components<'a>(nodes: usize, edges: impl Fn(usize) -> &'a [usize]) -> Vec<Vec<usize>> {
    const DONE: usize = usize::MAX;
    // By node: 0 if it is new, its number in the order of visits from 1 on, or DONE.
    let mut order = vec![0; nodes];
    // The lowest number on the stack that the node leads to.
    let mut low = vec![0; nodes];
    let mut visits = 0;
    let mut stack = Vec::new();
    let mut components = Vec::new();
    // Without recursion: a chain may be long. The nodes under way, and their edges that are left.
    let mut path: Vec<(usize, std::slice::Iter<'a, usize>)> = Vec::new();
    for start in 0..nodes {
        let mut enter = (order[start] == 0).then_some(start);
        loop {
            if let Some(node) = enter.take() {
                visits += 1;
                (order[node], low[node]) = (visits, visits);
                stack.push(node);
                path.push((node, edges(node).iter()));
            }
            let Some((node, rest)) = path.last_mut() else { break };
            let node = *node;
            if let Some(next) = rest.find(|next| **next < nodes && order[**next] != DONE) {
                match order[*next] {
                    0 => enter = Some(*next),
                    visited => low[node] = low[node].min(visited),
                }
                continue;
            }
            path.pop();
            if let Some((before, _)) = path.last() {
                low[*before] = low[*before].min(low[node]);
            }
            if low[node] == order[node] {
                let first = stack.iter().rposition(|on| *on == node).unwrap_or_default();
                let component = stack.split_off(first);
                component.iter().for_each(|node| order[*node] = DONE);
                components.push(component);
            }
        }
    }
    components
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    fn reaches(edges: &[Vec<usize>], from: usize, to: usize) -> bool {
        let mut seen = vec![false; edges.len()];
        let mut next = edges[from].clone();
        while let Some(node) = next.pop() {
            if node == to {
                return true;
            }
            if node < edges.len() && !std::mem::replace(&mut seen[node], true) {
                next.extend(&edges[node]);
            }
        }
        false
    }

    proptest! {
        #[test]
        fn nodes_are_in_one_component_if_each_reaches_the_other(
            edges in prop::collection::vec(prop::collection::vec(0..9_usize, 0..3), 0..8),
        ) {
            let found = components(edges.len(), |node| &edges[node]);
            let mut place = vec![None; edges.len()];
            for (at, component) in found.iter().enumerate() {
                for node in component {
                    prop_assert_eq!(place[*node].replace(at), None, "each node is in one component");
                }
            }
            prop_assert!(place.iter().all(Option::is_some));
            for one in 0..edges.len() {
                for other in 0..edges.len() {
                    let both = reaches(&edges, one, other) && reaches(&edges, other, one);
                    prop_assert_eq!(place[one] == place[other], one == other || both);
                }
                for next in edges[one].iter().filter(|next| **next < edges.len()) {
                    prop_assert!(place[*next] <= place[one], "what an edge leads to is before its node");
                }
            }
        }
    }

    #[test]
    fn the_edges_of_each_node_are_read_once() {
        for nodes in [10, 1_000] {
            // A chain against the order of numbers, and an edge from each node to the nodes behind it.
            let edges: Vec<Vec<usize>> = (0..nodes).map(|node| (node + 1..nodes.min(node + 33)).collect()).collect();
            let read = Cell::new(0);
            let found = components(nodes, |node| {
                read.set(read.get() + 1);
                &edges[node]
            });
            assert_eq!((found.len(), read.get()), (nodes, nodes));
        }
    }
}
