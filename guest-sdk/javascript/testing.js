// A host for tests under `node --test`: it executes runs and returns what they did. Import it before the plugin.
// It has no grants and no limits; `podium dev` has both.

let pods;
let workload;
let objects;
let store;
let done;
let committed;

const labelMatches = (labels, [key, operator, values]) => {
  if (operator === "exists") return key in labels;
  if (operator === "does-not-exist") return !(key in labels);
  return values.includes(labels[key]) === (operator === "in");
};

const nameOf = ({ metadata: { namespace, name } }) => `${namespace}\0${name}`;
const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** Returns whether a Pod has the owner of a query: a uid, or the kind and name of its workload. */
const isOwned = (pod, owner) => {
  if (!owner.includes("/")) return (pod.metadata.ownerReferences ?? []).some(({ uid }) => uid === owner);
  const { kind, name } = workload(pod) ?? {};
  return `${kind}/${name}` === owner;
};

const select = ({ namespace, node, ownerUid, phase, labels }) =>
  pods.filter(
    ({ metadata, spec, status }) =>
      (namespace === undefined || metadata.namespace === namespace) &&
      (node === undefined || spec?.nodeName === node) &&
      (ownerUid === undefined || isOwned({ metadata }, ownerUid)) &&
      (phase === undefined || (status?.phase ?? "") === phase) &&
      labels.every((requirement) => labelMatches(metadata.labels ?? {}, requirement)),
  );

const get = (namespace, name) => {
  const found = pods.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name);
  return found && JSON.stringify(found);
};

const swap = (key, expected, change) => {
  const [, version = 0] = store.get(key) ?? [];
  if (expected !== undefined && expected !== version) return false;
  change(version + 1);
  return true;
};

const host = {
  shallow: (function_, self, ...values) => function_.apply(self, values),
  log: (level, message, fields) => done.log.push([level, message, Object.fromEntries(fields)]),
  podsGet: get,
  podsGetLive: get,
  podsFind: (query) => [JSON.stringify(select(query)), undefined],
  podsCount: (query) => select(query).length,
  commit: () => {
    const sent = done.writes.map(([name], id) => ({ id, description: name, result: "applied", settled: true }));
    const reports = sent.slice(committed);
    committed = sent.length;
    return reports;
  },
  emit: ([namespace, name], warning, reason, action, note) =>
    done.events.push([warning ? "Warning" : "Normal", `${namespace}/${name}`, reason, note]),
  stateGet: (key) => store.get(key),
  statePut: (key, value, expected) => swap(key, expected, (version) => store.set(key, [value, version])),
  stateRemove: (key, expected) => swap(key, expected, () => store.delete(key)),
  objectsGet: (apiVersion, kind, namespace, name) => {
    const found = objects.find(
      (object) =>
        object.apiVersion === apiVersion && object.kind === kind &&
        object.metadata.namespace === namespace && object.metadata.name === name,
    );
    return found && JSON.stringify(found);
  },
  scale: (apiVersion, kind, namespace, name, replicas) =>
    done.writes.push(["scale", { apiVersion, kind, namespace, name }, replicas]) - 1,
  applyObject: (object) => done.writes.push(["applyObject", JSON.parse(object)]) - 1,
  deleteObject: (apiVersion, kind, namespace, name) =>
    done.writes.push(["deleteObject", { apiVersion, kind, namespace, name }]) - 1,
};
for (const write of [
  "setLabel", "removeLabel", "setAnnotation", "removeAnnotation", "addFinalizer", "removeFinalizer", "setCondition",
  "removeCondition", "delete", "evict",
]) {
  host[write] = ([namespace, name], ...values) => done.writes.push([write, `${namespace}/${name}`, ...values]) - 1;
}
// The module "podium" is the one that plugins have in the cluster, and takes the host from here.
globalThis.__podium = host;

/** Returns a Pod with these labels; change it as the test needs. */
export const pod = (namespace, name, labels = {}) => ({
  metadata: { namespace, name, uid: `uid-of-${name}`, labels },
  spec: { containers: [{ name: "main", image: "nginx:1.29" }] },
  status: { phase: "Running" },
});

/**
 * Executes one run of `reconcile`. `others` are the Pods that it finds besides `pod`, `objects` the objects that
 * `objects.get` reads, and `state` is a Map to keep between runs. Returns `{ outcome, error, writes, events, log }`;
 * with an error nothing is written except by `commit`.
 */
export async function run(reconcile, request = {}) {
  const { pod: present, deleted, others = [], state = new Map(), config = {}, now = 0, attempt = 1 } = request;
  objects = request.objects ?? [];
  pods = (present ? [present, ...others] : [...others]).sort((a, b) => order(nameOf(a), nameOf(b)));
  // The module takes the host from here, so it is imported after this one.
  ({ workload } = await import("./podium.js"));
  store = state;
  done = { writes: [], events: [], log: [] };
  committed = 0;
  const { namespace, name, uid } = (present ?? deleted)?.metadata ?? { namespace: "shop", name: "gone", uid: "gone" };
  const text = (value) => value && JSON.stringify(value);
  const { kind, millis, text: error } = await host.run(reconcile, {
    pod: text(present),
    deleted: text(deleted),
    config: text(config),
    key: { namespace, name, uid },
    now: Number(now),
    attempt,
    unsettled: request.unsettled ?? [],
    seed: 1,
  });
  const sent = done.writes.slice(0, committed);
  if (error !== undefined) return { ...done, error, outcome: undefined, writes: sent, events: [] };
  const outcome = { settled: undefined, stop: { stop: true }, requeue: { afterSeconds: millis / 1000 } }[kind];
  return { ...done, outcome, error: undefined };
}

/** The most runs on one Pod until it must be settled. */
const MOST_RUNS = 100;

const replaced = (list = [], is, value) =>
  list.some(is) ? list.map((one) => (is(one) ? value : one)) : [...list, value];
const without = (list, is) => list?.filter((one) => !is(one));
const remove = ({ metadata }) => {
  metadata.deletionTimestamp ??= "1970-01-01T00:00:00Z";
};

/** Executes a write, by its name. */
const changes = {
  setLabel: ({ metadata }, key, value) => (metadata.labels = { ...metadata.labels, [key]: value }),
  removeLabel: ({ metadata }, key) => delete metadata.labels?.[key],
  setAnnotation: ({ metadata }, key, value) => (metadata.annotations = { ...metadata.annotations, [key]: value }),
  removeAnnotation: ({ metadata }, key) => delete metadata.annotations?.[key],
  addFinalizer: ({ metadata }, name) =>
    (metadata.finalizers = replaced(metadata.finalizers, (one) => one === name, name)),
  removeFinalizer: ({ metadata }, name) => {
    if (metadata.finalizers) metadata.finalizers = without(metadata.finalizers, (one) => one === name);
  },
  setCondition: (pod, type, status, reason, message) => {
    const condition = { type, status, reason, message };
    const conditions = replaced(pod.status?.conditions, (one) => one.type === type, condition);
    pod.status = { ...pod.status, conditions };
  },
  removeCondition: ({ status = {} }, type) => {
    if (status.conditions) status.conditions = without(status.conditions, (one) => one.type === type);
  },
  delete: remove,
  evict: remove,
};

/**
 * Runs `reconcile` on each of the Pods, executes its writes, and runs it again on each Pod that they changed, until
 * nothing changes. `request` is that of `run`, without Pods. Every change of a Pod wakes the plugin, whatever
 * `spec.watch` says. A run that failed or asked for a later one is not repeated, because no time passes. A Pod that was
 * deleted is gone when it has no finalizer. Returns `{ pods, runs }`: the Pods that are left, and pairs of a Pod's
 * `namespace/name` and the result of a run.
 */
export async function settle(reconcile, pods, request = {}) {
  const present = new Map(structuredClone(pods).map((pod) => [`${pod.metadata.namespace}/${pod.metadata.name}`, pod]));
  const gone = new Map();
  const runs = [];
  const { state = new Map() } = request;
  const woken = new Set(present.keys());
  for (const name of woken) {
    woken.delete(name);
    if (runs.filter(([other]) => other === name).length === MOST_RUNS) {
      throw new Error(`${name} does not settle: the plugin woke itself with its writes ${MOST_RUNS} times`);
    }
    const pod = present.get(name);
    const others = [...present.values()].filter((other) => other !== pod);
    const done = await run(reconcile, { ...request, state, pod, deleted: gone.get(name), others });
    runs.push([name, done]);
    for (const [write, target, ...values] of done.writes) {
      const changed = present.get(target);
      const before = JSON.stringify(changed);
      if (changed) changes[write](changed, ...values);
      if (before === JSON.stringify(changed)) continue;
      woken.add(target);
      if (changed.metadata.deletionTimestamp && !changed.metadata.finalizers?.length) {
        present.delete(target);
        gone.set(target, changed);
      }
    }
  }
  return { pods: [...present.values()], runs };
}
