// Tests of the module "podium" and of testing.js without a runner. The suite `embedded` runs them, in a folder as
// `podium new` writes it.

import assert from "node:assert";
import { test } from "node:test";

import { pod, run, settle } from "./podium/testing.js";

import { pods, quantity, state, workload, writes } from "podium";

const replica = (name, hash, kind = "ReplicaSet") => {
  const made = pod("shop", name, { "pod-template-hash": hash });
  made.metadata.ownerReferences = [{ kind, name: `web-${hash}`, uid: hash, controller: true }];
  return made;
};

test("the siblings of a Pod are the Pods of its workload", async () => {
  const others = [replica("b", "2"), replica("c", "1", "StatefulSet"), pod("shop", "d")];
  const names = ({ pod }) => ({ afterSeconds: [...pods.siblings(pod)].length });
  const counted = async (of) => (await run(names, { pod: of, others })).outcome;
  assert.deepStrictEqual(await counted(replica("a", "1")), { afterSeconds: 2 });
  assert.deepStrictEqual(await counted(pod("shop", "e")), { afterSeconds: 0 });
  assert.deepStrictEqual(workload(others[1]), { kind: "StatefulSet", name: "web-1", uid: "1" });
});

test("writes wake until nothing changes, and a deletion is run once", async () => {
  const reconcile = ({ pod, key }) => {
    if (!pod) return;
    if (pod.metadata.labels.done) {
      writes.setCondition(pod, { type: "a", status: "True" });
      writes.removeFinalizer(pod, "a");
      writes.delete(pod);
    } else if (key.name === "a") {
      for (const other of pods.find()) {
        writes.addFinalizer(other, "a");
        writes.setAnnotation(other, "a", "1");
      }
    } else {
      writes.setLabel(pod, "done", "1");
    }
  };
  const all = [pod("shop", "a"), pod("shop", "b")];
  const done = await settle(reconcile, all);
  assert.deepStrictEqual(done.runs.map(([name]) => name), ["shop/a", "shop/b", "shop/a", "shop/b", "shop/b"]);
  const [{ metadata }, ...more] = done.pods;
  assert.deepStrictEqual([metadata.annotations, metadata.finalizers, more], [{ a: "1" }, ["a"], []]);
  assert.strictEqual(all[0].metadata.finalizers, undefined);
  const endless = ({ pod }) => void writes.setLabel(pod, "a", `${state.update("a", (seen = 0) => seen + 1)}`);
  await assert.rejects(settle(endless, [pod("shop", "a")]), /shop\/a does not settle/);
});

test("a text without a form in UTF-8 is refused as on the host", async () => {
  const { error } = await run(({ pod }) => writes.setLabel(pod, "a", "\ud800"), { pod: pod("shop", "a") });
  assert.match(error, /the value of a has no form in UTF-8/);
});

test("a report emits one Event for each change of its condition", async () => {
  const reconcile = ({ pod }) => {
    const waits = pod.status.phase === "Pending";
    const condition = { type: "example.com/Waits", status: waits ? "True" : "False", reason: "Phase" };
    writes.report(pod, condition, { type: "Warning", reason: "Waits", note: `waits: ${waits}` });
    writes.labelTo(pod, "state", waits ? "waits" : undefined);
    writes.annotationTo(pod, "state", waits ? "" : null);
  };
  const cart = pod("shop", "cart-0", { state: "waits" });
  const first = await settle(reconcile, [cart]);
  assert.deepStrictEqual(first.runs.map(([, { events }]) => events.length), [1, 0]);
  const [{ metadata, status }] = first.pods;
  assert.deepStrictEqual([metadata.labels, status.conditions[0].status], [{}, "False"]);
  first.pods[0].status.phase = "Pending";
  const second = await settle(reconcile, first.pods);
  assert.deepStrictEqual(second.runs[0][1].events, [["Warning", "shop/cart-0", "Waits", "waits: true"]]);
  assert.deepStrictEqual(second.pods[0].metadata.labels, { state: "waits" });
  assert.deepStrictEqual(second.pods[0].metadata.annotations, { state: "" });
});

test("a report without a status is an error", async () => {
  const reconcile = ({ pod }) => writes.report(pod, { type: "example.com/Waits" }, { reason: "Waits", note: "" });
  const cart = pod("shop", "cart-0");
  for (const conditions of [[], [{ type: "example.com/Waits", status: "True" }]]) {
    cart.status.conditions = conditions;
    assert.match((await run(reconcile, { pod: cart })).error, /TypeError: status is no string: undefined/);
  }
});

test("quantities are compared in billionths, and + makes a number of them", () => {
  const [half, one] = [quantity("500m"), quantity("1")];
  assert.deepStrictEqual([half < one, one > 500_000_000, one > 1_000_000_000], [true, true, false]);
  assert.deepStrictEqual([half + half, `${half.plus(half)}`], [1_000_000_000n, "1"]);
  assert.throws(() => half + 1, TypeError);
  assert.deepStrictEqual([half == quantity("0.5"), JSON.stringify([half])], [false, '["0.5"]']);
});

test("a section that is not granted is no empty one", async () => {
  const blind = pod("shop", "cart-0");
  delete blind.status;
  const { error } = await run(({ pod }) => console.log(pods.isReady(pod)), { pod: blind });
  assert.match(error, /the Pod has no status: the section status is not granted/);
});
