// The module "podium", which every script may import. podium.d.ts has its types and its documentation.

const host = globalThis.__podium;
delete globalThis.__podium;

// Functions that recurse in the engine itself: its stack is checked more strictly while they run.
for (const [object, name] of [[JSON, "parse"], [JSON, "stringify"], [Array.prototype, "flat"]]) {
  const { shallow } = host;
  const whole = object[name];
  object[name] = {
    [name](...values) {
      return shallow(whole, this, ...values);
    },
  }[name];
}
// Taken now, so that a script that replaces them changes only its own calls.
const { parse, stringify } = JSON;

export class TerminalError extends Error {
  name = "TerminalError";
}

export class CallError extends Error {
  name = "CallError";

  constructor(call, [code, text]) {
    super(`${call}: ${text}`);
    this.code = code;
  }
}

/** Calls the host; a refusal is an exception that names the call. */
const call = (name, function_, ...values) => {
  try {
    return host[function_](...values);
  } catch (error) {
    throw Array.isArray(error) ? new CallError(name, error) : error;
  }
};

const text = (value, name) => {
  if (typeof value !== "string") throw new TypeError(`${name} is no string: ${show(value)}`);
  if (!value.isWellFormed()) throw new TypeError(`${name} has no form in UTF-8: ${stringify(value)}`);
  return value;
};

/**
 * Text of a bounded length, in which a lone surrogate is written as an escape: the host ends a run that passes too much
 * at once.
 */
const cut = (value, length) => {
  // Does not divide a pair of surrogates.
  const text = value.slice(0, value.codePointAt(length - 1) > 0xffff ? length - 1 : length);
  const escape = (one) => `\\u${one.charCodeAt(0).toString(16)}`;
  return text.isWellFormed() ? text : text.replace(/[\ud800-\udfff]/gu, escape).slice(0, length).toWellFormed();
};

const count = (value, name) => {
  if (!Number.isSafeInteger(value) || value < 0) throw new TypeError(`${name} is no whole number: ${show(value)}`);
  return value;
};

const optional = (value, name) => (value === undefined || value === null ? undefined : text(value, name));

const key = (target) => {
  const of = target?.metadata ?? target;
  if (typeof of?.uid !== "string") {
    throw new TypeError(`the target is neither a Pod nor a key {namespace, name, uid}: ${show(target)}`);
  }
  return [text(of.namespace, "namespace"), text(of.name, "name"), text(of.uid, "uid")];
};

const show = (value) => {
  if (typeof value === "string") return value;
  if (value instanceof Error) return `${value}`;
  try {
    return stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
};

/** Stages a write of one Pod, described as "set label team on shop/cart-0". */
const write = (verb, what, function_, target, ...values) => {
  const of = key(target);
  return call(`${verb} ${what} on ${of[0]}/${of[1]}`, function_, of, ...values);
};

/** Calls the host about an object that is not a Pod, described as "delete v1 ConfigMap shop/summary". */
const onObject = (verb, function_, { apiVersion, kind, namespace, name }, ...values) =>
  call(
    `${verb} ${apiVersion} ${kind} ${namespace ?? ""}/${name}`, function_,
    text(apiVersion, "apiVersion"), text(kind, "kind"), optional(namespace, "namespace"), text(name, "name"),
    ...values,
  );

export const writes = {
  setLabel: (target, label, value) =>
    write("set label", label, "setLabel", target, text(label, "the label's key"), text(value, `the value of ${label}`)),
  removeLabel: (target, label) => write("remove label", label, "removeLabel", target, text(label, "the label's key")),
  labelTo: (target, label, value) =>
    value === undefined || value === null
      ? writes.removeLabel(target, label)
      : writes.setLabel(target, label, value),
  setAnnotation: (target, name, value) =>
    write(
      "set annotation", name, "setAnnotation", target,
      text(name, "the annotation's key"), text(value, `the value of ${name}`),
    ),
  removeAnnotation: (target, name) =>
    write("remove annotation", name, "removeAnnotation", target, text(name, "the annotation's key")),
  annotationTo: (target, name, value) =>
    value === undefined || value === null
      ? writes.removeAnnotation(target, name)
      : writes.setAnnotation(target, name, value),
  addFinalizer: (target, name) => write("add finalizer", name, "addFinalizer", target, text(name, "the finalizer")),
  removeFinalizer: (target, name) =>
    write("remove finalizer", name, "removeFinalizer", target, text(name, "the finalizer")),
  setCondition: (target, { type, status, reason = "", message = "" }) =>
    write(
      "set condition", type, "setCondition", target,
      text(type, "type"), text(status, "status"), text(reason, "reason"), text(message, "message"),
    ),
  report: (pod, condition, event) => {
    const { type, status, reason = "", message = "" } = condition;
    const here = section(pod, "status").conditions?.find((one) => one.type === type);
    if (here && here.status === status && (here.reason ?? "") === reason && (here.message ?? "") === message) return;
    writes.setCondition(pod, condition);
    events.emit(pod, event);
  },
  removeCondition: (target, type) => write("remove condition", type, "removeCondition", target, text(type, "type")),
  delete: (target, gracePeriodSeconds) =>
    write(
      "delete", "pod", "delete", target,
      gracePeriodSeconds === undefined
        ? undefined
        : Math.min(count(gracePeriodSeconds, "gracePeriodSeconds"), 2 ** 31 - 1),
    ),
  evict: (target) => write("evict", "pod", "evict", target),
  applyObject: (object, owner) => {
    const [kind, ...others] = owner === undefined ? [] : Object.keys(Object(owner));
    if (owner !== undefined && (!["pod", "workload"].includes(kind) || others.length > 0)) {
      throw new TypeError(`the owner is neither {pod} nor {workload}: ${show(owner)}`);
    }
    const of = (name) => (kind === name ? key(owner[name]) : undefined);
    return call("apply object", "applyObject", json(object), of("pod"), of("workload"));
  },
  deleteObject: (object, uid) => onObject("delete", "deleteObject", object, optional(uid, "uid")),
  commit: () => call("commit", "commit"),
};

const requirement = ([label, value]) => {
  const texts = (values) => values.map((one) => text(one, `a value of ${label}`));
  text(label, "a label's key");
  if (value === true) return [label, "exists", []];
  if (value === false) return [label, "does-not-exist", []];
  if (typeof value === "string") return [label, "in", texts([value])];
  if (Array.isArray(value)) return [label, "in", texts(value)];
  if (Array.isArray(value?.not)) return [label, "not-in", texts(value.not)];
  throw new TypeError(`labels: ${label} is no string, array of strings, boolean or {not: [..]}: ${show(value)}`);
};

const select = (query) => {
  const { namespace, node, ownerUid, workload, phase, labels = {}, ...unknown } = query;
  for (const field in unknown) throw new TypeError(`a query has no field ${field}`);
  let owner = ownerUid;
  if ("workload" in query) {
    if (typeof workload?.name !== "string" || typeof workload.kind !== "string") {
      const why = "it has no controller, or the sections owners and labels are not granted";
      throw new TypeError(`workload is none of a Pod: ${show(workload)}; if workload(pod) is undefined, ${why}`);
    }
    if (ownerUid !== undefined) throw new TypeError("a query has one of ownerUid and workload");
    owner = `${workload.kind}/${workload.name}`;
  }
  const selected = { namespace, node, ownerUid: owner, phase };
  for (const field in selected) selected[field] = optional(selected[field], field);
  return { ...selected, labels: Object.entries(labels).map(requirement) };
};

/** The labels of a ReplicaSet's Pods with the end of its name, and what made it. */
const hashes = [["pod-template-hash", "Deployment"], ["rollouts-pod-template-hash", "Rollout"]];

export const workload = ({ metadata: { ownerReferences = [], labels = {} } }) => {
  const controller = ownerReferences.find((owner) => owner.controller);
  if (controller === undefined || controller.kind === "Node") return undefined;
  const { kind, name, uid } = controller;
  for (const [label, above] of kind === "ReplicaSet" ? hashes : []) {
    const hash = labels[label];
    const end = hash ? name.length - hash.length - 1 : 0;
    if (end > 0 && name.endsWith(`-${hash}`)) return { kind: above, name: name.slice(0, end) };
  }
  return { kind, name, uid };
};

const none = (value, what) =>
  new TerminalError(`${typeof value === "string" ? stringify(cut(value, 64)) : cut(show(value), 64)} is no ${what}`);

const unit = 10n ** 9n;
/** The largest amount that Kubernetes stores. */
const most = (2n ** 63n - 1n) * unit;
const amount = /^([+-]?)(?=\.?\d)(\d*)(?:\.(\d*))?(?:([numkMGTPE]?)|([KMGTPE])i|[eE]([+-]?\d+))$/;

class Quantity {
  #nanos;

  constructor(nanos) {
    this.#nanos = nanos > most ? most : nanos < -most ? -most : nanos;
  }

  plus(other) {
    return new Quantity(this.#nanos + other.#nanos);
  }

  value() {
    return parts(this.#nanos, unit);
  }

  millis() {
    return parts(this.#nanos, unit / 1000n);
  }

  valueOf() {
    return this.#nanos;
  }

  toString() {
    const digits = `${this.#nanos}`.replace("-", "").padStart(10, "0");
    const decimal = `${digits.slice(0, -9)}.${digits.slice(-9)}`.replace(/\.?0+$/, "");
    return this.#nanos < 0n ? `-${decimal}` : decimal;
  }

  toJSON() {
    return this.toString();
  }
}

/** Rounds up. */
const parts = (nanos, part) => Number(nanos / part + (nanos % part > 0n ? 1n : 0n));

const parsed = (value, context) => {
  const found = typeof value === "string" ? (amount.exec(value) ?? []) : [];
  const [, sign, whole, fraction = "", decimal, binary, exponent] = found;
  const power = decimal === undefined ? Number(exponent ?? 0) : ("num kMGTPE".indexOf(decimal || " ") - 3) * 3;
  if (sign === undefined || Math.abs(power) > 18) {
    throw new TerminalError(context + none(value, "quantity, such as 500m, 2, 1.5Gi or 1e3").message);
  }
  const times = binary ? 1024n ** BigInt("KMGTPE".indexOf(binary) + 1) : 10n ** BigInt(Math.max(power, 0));
  const over = unit * 10n ** BigInt(Math.max(-power, 0));
  // A fraction of 18 digits, in billionths of a billionth; the others only round up.
  const digits = BigInt(whole.replace(/^0+/, "").slice(0, 40) + fraction.slice(0, 18).padEnd(18, "0")) * times;
  const isInexact = digits % over > 0n || /[1-9]/.test(fraction.slice(18));
  const nanos = digits / over + (isInexact ? 1n : 0n);
  return new Quantity(sign === "-" ? -nanos : nanos);
};

export const quantity = (value) => parsed(value, "");

const units = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600, d: 86400 };

export const duration = (value) => {
  const found = [...show(value).matchAll(/(\d+(?:\.\d*)?|\.\d+)(ns|us|ms|s|m|h|d)/gy)];
  const seconds = found.reduce((sum, [, number, unit]) => sum + number * units[unit], 0);
  const isWhole = found.map(([part]) => part).join("") === value && value !== "";
  if ((!isWhole && value !== "0") || seconds >= 2 ** 64) throw none(value, "duration, such as 90s, 1h30m or 7d");
  return Math.round(seconds * 1e9) / 1e9;
};

/** Returns a section; without its grant the Pod has none. */
const section = (pod, name) => {
  if (!pod[name]) throw new TerminalError(`the Pod has no ${name}: the section ${name} is not granted`);
  return pod[name];
};

const pod = (json) => (json === undefined ? undefined : parse(json));

export const pods = {
  get: (namespace, name) => pod(call("pods.get", "podsGet", text(namespace, "namespace"), text(name, "name"))),
  getLive: (namespace, name) =>
    pod(call("pods.getLive", "podsGetLive", text(namespace, "namespace"), text(name, "name"))),
  *find(query = {}) {
    const selected = select(query);
    let next;
    do {
      const [page, after] = call("pods.find", "podsFind", selected, 100, next);
      yield* parse(page);
      next = after;
    } while (next !== undefined);
  },
  count: (query = {}) => call("pods.count", "podsCount", select(query)),
  *siblings(pod) {
    const of = workload(pod);
    if (of) yield* pods.find({ namespace: pod.metadata.namespace, workload: of });
  },
  requests: (pod, resource) => {
    const { containers = [], initContainers = [] } = section(pod, "spec");
    const of = ({ name, resources }) =>
      parsed(resources?.requests?.[resource] ?? "0", `container ${name}: requests.${resource}: `);
    let sidecars = quantity("0");
    let starting = sidecars;
    for (const container of initContainers) {
      const needed = sidecars.plus(of(container));
      if (needed > starting) starting = needed;
      if (container.restartPolicy === "Always") sidecars = needed;
    }
    const running = containers.reduce((sum, container) => sum.plus(of(container)), sidecars);
    return running > starting ? running : starting;
  },
  isReady: (pod) =>
    (section(pod, "status").conditions ?? []).some(({ type, status }) => type === "Ready" && status === "True"),
  finishedAt: (pod) => {
    const { phase, conditions = [], containerStatuses = [], initContainerStatuses = [] } = section(pod, "status");
    if (phase !== "Succeeded" && phase !== "Failed") return undefined;
    const ended = [...containerStatuses, ...initContainerStatuses].map(({ state }) => state?.terminated?.finishedAt);
    const moved = conditions.map(({ lastTransitionTime }) => lastTransitionTime);
    const known = [ended, moved, [pod.metadata.creationTimestamp]].map((all) => all.filter(Boolean));
    const times = known.find(({ length }) => length > 0);
    return times && new Date(Math.max(...times.map((time) => Date.parse(time))));
  },
};

export const objects = {
  get: (object) => pod(onObject("get", "objectsGet", object)),
  scale: (object, replicas) => onObject("scale", "scale", object, Math.min(count(replicas, "replicas"), 2 ** 32 - 1)),
};

export const events = {
  emit: (target, { type = "Normal", reason, action = "Reconcile", note }) => {
    if (type !== "Normal" && type !== "Warning") {
      throw new TypeError(`type is not "Normal" or "Warning": ${show(type)}`);
    }
    write(
      "emit", reason, "emit", target,
      type === "Warning", text(reason, "reason"), text(action, "action"), text(note, "note"),
    );
  },
};

const json = (value) => {
  const encoded = stringify(value);
  if (encoded === undefined) throw new TypeError(`the value has no form in JSON: ${show(value)}`);
  // The engine escapes lone surrogates, which other readers of JSON refuse, and no other character above the controls.
  const [, lone] = encoded.includes("\\ud") ? (encoded.match(/[^\\](?:\\\\)*(\\ud[89a-f]..)/) ?? []) : [];
  if (lone) throw new TypeError(`the value has no form in UTF-8: it has ${lone}`);
  return encoded;
};

const put = (name, value, expected) =>
  call(`state.put ${show(name)}`, "statePut", text(name, "the key"), json(value), expected);

const remove = (name, expected) => call(`state.remove ${show(name)}`, "stateRemove", text(name, "the key"), expected);

/** Returns the value and the version; a value that is not JSON counts as lost. */
const entry = (name) => {
  const [value, version] = call(`state.get ${show(name)}`, "stateGet", text(name, "the key")) ?? [undefined, 0];
  try {
    return [pod(value), version];
  } catch {
    return [undefined, version];
  }
};

export const state = {
  get: (name) => entry(name)[0],
  entry: (name) => {
    const [value, version] = entry(name);
    return value === undefined ? undefined : { value, version };
  },
  put: (name, value) => {
    put(name, value);
  },
  putIf: (name, value, expected) => put(name, value, count(expected, "the expected version")),
  update: (name, change) => {
    for (let attempt = 0; attempt < 16; attempt++) {
      const [present, version] = entry(name);
      const value = change(present);
      if (put(name, value, version)) return value;
    }
    throw new Error(`state.update ${show(name)}: other runs were faster 16 times`);
  },
  remove: (name) => {
    remove(name);
  },
  removeIf: (name, expected) => remove(name, count(expected, "the expected version")),
};

const line = (level) => (message, fields = {}) =>
  host.log(
    level, cut(show(message), 16384),
    Object.entries(fields).map(([name, value]) => [cut(name, 256), cut(show(value), 4096)]),
  );

export const log = { debug: line("debug"), info: line("info"), warn: line("warn"), error: line("error") };

const print = (level) => (...values) => host.log(level, cut(values.map(show).join(" "), 16384), []);

globalThis.console = {
  debug: print("debug"),
  log: print("info"),
  info: print("info"),
  warn: print("warn"),
  error: print("error"),
};

/** Returns `plugin.js:line:column` of the script's innermost frame. */
const place = (error) => {
  const stack = typeof error?.stack === "string" ? error.stack : "";
  const start = stack.indexOf("plugin.js:");
  return start < 0 ? "" : stack.slice(start).split(/[)\s]/, 1)[0];
};

const terminal = (error) =>
  error instanceof TerminalError ||
  (error instanceof CallError && (error.code === "not-granted" || error.code === "invalid"));

const failure = (error) => {
  // The engine throws null when there is no memory for an exception.
  if (error === null) return { kind: "retry", text: "out of memory, or null was thrown" };
  const named = error instanceof Error && !["Error", "CallError", "TerminalError"].includes(error.name);
  const message = cut(String(named || !(error instanceof Error) ? show(error) : error.message), 4096);
  const at = place(error);
  return { kind: terminal(error) ? "terminal" : "retry", text: at ? `${message} (${at})` : message };
};

const outcome = (value) => {
  if (value === undefined || value === null) return { kind: "settled" };
  const { afterSeconds, stop, ...unknown } = Object(value);
  if (typeof value === "object" && Object.keys(unknown).length === 0) {
    if (stop === true && afterSeconds === undefined) return { kind: "stop" };
    if (stop !== true && Number.isFinite(afterSeconds) && afterSeconds >= 0) {
      return { kind: "requeue", millis: Math.ceil(afterSeconds * 1000) };
    }
  }
  throw new TerminalError(`reconcile returned ${show(value)}: return nothing, {afterSeconds: n} or {stop: true}`);
};

/** Executes one run; the runner takes it from `host` after this module. */
host.run = async (reconcile, request) => {
  try {
    // mulberry32
    let seed = request.seed;
    Math.random = () => {
      seed = (seed + 0x6d2b79f5) | 0;
      let mixed = Math.imul(seed ^ (seed >>> 15), seed | 1);
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
    };
    const { key, now, attempt, unsettled } = request;
    const [present, deleted, config] = [request.pod, request.deleted, request.config].map(pod);
    return outcome(await reconcile({ pod: present, deleted, key, now: new Date(now), attempt, config, unsettled }));
  } catch (error) {
    return failure(error);
  }
};

host.failure = failure;
