/**
 * The module "podium": the calls of a plugin in JavaScript. Editors and `tsc --checkJs` read this file; the module
 * itself is part of the host.
 *
 * Writes are staged, and sent after `reconcile` returned. A run that throws sends none of them. A call that the host
 * refuses throws a {@link CallError}.
 */
declare module "podium" {
  /** One incarnation of a Pod. A Pod deleted and created again has another uid. */
  export interface PodKey {
    namespace: string;
    name: string;
    uid: string;
  }

  /** A Pod as `kubectl get pod -o json` prints it, with the granted sections only. */
  export interface Pod {
    metadata: {
      namespace: string;
      name: string;
      uid: string;
      resourceVersion?: string;
      creationTimestamp?: string;
      deletionTimestamp?: string;
      labels?: Record<string, string>;
      annotations?: Record<string, string>;
      finalizers?: string[];
      ownerReferences?: OwnerReference[];
      [field: string]: any;
    };
    spec?: {
      nodeName?: string;
      containers: { name: string; image: string; [field: string]: any }[];
      [field: string]: any;
    };
    status?: { phase?: string; conditions?: Condition[]; [field: string]: any };
    [field: string]: any;
  }

  export interface OwnerReference {
    apiVersion: string;
    kind: string;
    name: string;
    uid: string;
    controller?: boolean;
  }

  export interface Condition {
    type: string;
    status: "True" | "False" | "Unknown";
    /** Empty by default. */
    reason?: string;
    /** Empty by default. */
    message?: string;
  }

  /** The argument of `reconcile`: the present state of one Pod, and never the change that caused the run. */
  export interface Request {
    /** The present Pod, or the first one of a group (`watch.related`); undefined if it is gone. */
    pod?: Pod;
    /**
     * The last known state of a Pod that is gone, if there is one; for a group that of its last Pod, which may live on
     * in another one.
     */
    deleted?: Pod;
    /** The incarnation of the Pod that the run is for; the group, if it ended and its last state is not known. */
    key: PodKey;
    /** The host's time at the start of the run. `new Date()` and `Date.now()` return the same. */
    now: Date;
    /** 1 for the first attempt, and one more for each consecutive failure. */
    attempt: number;
    /** `spec.config` of the plugin; `{}` by default. */
    config: any;
    /** Writes of the previous run that neither succeeded nor became unnecessary. */
    unsettled: WriteReport[];
  }

  /**
   * The result of a run: nothing to wait for the next change, `afterSeconds` to run again after that time or earlier
   * after a change, `stop` to have the plugins after this one skip this revision of the Pod.
   */
  export type Outcome = void | undefined | null | { afterSeconds: number } | { stop: true };

  /** The function that a plugin exports by default. It may be async; every promise must be awaited. */
  export type Reconcile = (request: Request) => Outcome | Promise<Outcome>;

  /** The target of a write: a Pod or its key. */
  export type Target = Pod | PodKey;

  /** An object that is not a Pod. */
  export interface ObjectRef {
    apiVersion: string;
    kind: string;
    /** Undefined for a kind without namespaces. */
    namespace?: string;
    name: string;
  }

  /** The result of one write. */
  export interface WriteReport {
    id: number;
    /** Such as "set label team=web on shop/cart-0". */
    description: string;
    result:
      | "applied"
      | "unchanged"
      | "conflict"
      | "ownedByOther"
      | "blocked"
      | "gone"
      | "forbidden"
      | "invalid"
      | "notSent"
      | "unknown";
    /** The API server's message, if there is one. */
    message?: string;
    /** Whether the object has the requested state or is gone. */
    settled: boolean;
  }

  /** Each function stages one write and returns its number within the run. */
  export const writes: {
    /** Sets one label and leaves the others unchanged. Grant: `write.labels`. */
    setLabel(target: Target, key: string, value: string): number;
    /** Removes one label. Grant: `write.labels`. */
    removeLabel(target: Target, key: string): number;
    /** Sets one label, or removes it if there is no value. Grant: `write.labels`. */
    labelTo(target: Target, key: string, value: string | undefined | null): number;
    /** Sets one annotation. Grant: `write.annotations`. */
    setAnnotation(target: Target, key: string, value: string): number;
    /** Removes one annotation. Grant: `write.annotations`. */
    removeAnnotation(target: Target, key: string): number;
    /** Sets one annotation, or removes it if there is no value. Grant: `write.annotations`. */
    annotationTo(target: Target, key: string, value: string | undefined | null): number;
    /** Adds a finalizer. Grant: `write.finalizers`. */
    addFinalizer(target: Target, name: string): number;
    /** Removes a finalizer. Grant: `write.finalizers`. */
    removeFinalizer(target: Target, name: string): number;
    /** Sets one condition in the Pod's status; the host sets its transition time. Grant: `write.conditions`. */
    setCondition(target: Target, condition: Condition): number;
    /**
     * Sets one condition, and stages an Event about it unless the Pod has the condition already: an Event for each
     * change, also after a restart of the host. Grants: `write.conditions` and `write.events`; needs the section
     * `status`.
     */
    report(pod: Pod, condition: Condition, event: Event): void;
    /** Removes one condition. Grant: `write.conditions`. */
    removeCondition(target: Target, type: string): number;
    /** Deletes the Pod with its own grace period, or with this one. Grant: `write.delete`. */
    delete(target: Target, gracePeriodSeconds?: number): number;
    /** Evicts the Pod, respecting disruption budgets. Grant: `write.evict`. */
    evict(target: Target): number;
    /**
     * Applies (server-side) the complete object of a granted kind. With `owner` it is deleted with the Pod, or with
     * the Pod's top workload. Grant: `write.objects`.
     */
    applyObject(object: object, owner?: { pod: Target } | { workload: Target }): number;
    /** Deletes an object of a granted kind; with `uid`, only that incarnation. Grant: `write.objects`. */
    deleteObject(object: ObjectRef, uid?: string): number;
    /** Sends the writes that are staged now, waits for the responses, and returns the results in staging order. */
    commit(): WriteReport[];
  };

  /**
   * Selects Pods: all fields that are set must match. A label's value is a string, an array of which one must match,
   * `{ not: [..] }` for none of them, `true` if the label must exist, and `false` if it must not.
   */
  export interface Query {
    namespace?: string;
    node?: string;
    ownerUid?: string;
    /**
     * The result of {@link workload}, and never undefined; it belongs to a `namespace`. The search needs `owners` and
     * `labels`.
     */
    workload?: Workload;
    phase?: "Pending" | "Running" | "Succeeded" | "Failed" | "Unknown" | "";
    labels?: Record<string, string | string[] | boolean | { not: string[] }>;
  }

  /** The object that a user made and whose replica a Pod is. A rollout does not change it. */
  export interface Workload {
    kind: string;
    name: string;
    /** Undefined for a Deployment and a Rollout, which are derived from the ReplicaSet's name. */
    uid?: string;
  }

  /**
   * Returns the workload of a Pod: its controller, or the Deployment or Rollout above its ReplicaSet; undefined without
   * a controller. Needs the sections `owners` and `labels`.
   */
  export function workload(pod: Pod): Workload | undefined;

  /** Reads of Pods in the cache. Grant: `read.pods`. Pods that the plugin may not see do not exist for it. */
  export const pods: {
    get(namespace: string, name: string): Pod | undefined;
    /** Reads from the API server instead of the cache, with a budget of its own. Grant: `read.pods.live`. */
    getLive(namespace: string, name: string): Pod | undefined;
    /** Returns the Pods that match, ordered by namespace and name, and reads them page by page. */
    find(query?: Query): IterableIterator<Pod>;
    /** Returns the number of Pods that match, without reading them. */
    count(query?: Query): number;
    /**
     * Returns the Pods of the same workload, this one among them, through a rollout those of both ReplicaSets; none
     * without a controller. Needs the sections `owners` and `labels`.
     */
    siblings(pod: Pod): IterableIterator<Pod>;
    /**
     * Returns the amount of a resource, such as `cpu`, that a Pod requests, as the scheduler computes it from its
     * containers: the sum of the containers and sidecars, or what an init container needs beside the sidecars before
     * it, if that is more. Needs the section `spec`.
     */
    requests(pod: Pod, resource: string): Quantity;
    /** Returns true if the condition `Ready` is true. Needs the section `status`. */
    isReady(pod: Pod): boolean;
    /**
     * Returns the time at which a Pod in the phase `Succeeded` or `Failed` finished: the end of its last container.
     * Without one, it is the last transition of its conditions, and without any the creation. Needs the section
     * `status`.
     */
    finishedAt(pod: Pod): Date | undefined;
  };

  /**
   * An amount of a resource, exact to a billionth: a finer one is rounded up. `<` and `>` compare two quantities, or
   * one with a number in billionths. `+` returns the billionths of a sum as a `bigint`: add with `plus`.
   */
  export interface Quantity {
    plus(other: Quantity): Quantity;
    /** Returns the amount in whole units, rounded up: bytes of memory, processors. */
    value(): number;
    /** Returns the amount in thousandths, rounded up: millicores of `cpu`. */
    millis(): number;
    /** Returns the amount in billionths. */
    valueOf(): bigint;
    /** Returns a decimal number without a suffix, which Kubernetes accepts for each resource. */
    toString(): string;
  }

  /** Parses a quantity of Kubernetes, such as "500m" or "1.5Gi"; throws a {@link TerminalError} for other values. */
  export function quantity(text: string): Quantity;

  /**
   * Parses a duration as Go and `kubectl` write it, such as "90s", "1h30m" or "1.5h", and days such as "7d", and
   * returns its seconds, for `afterSeconds`; throws a {@link TerminalError} for other values.
   */
  export function duration(text: string): number;

  /** Reads and replicas of objects that are not Pods. */
  export const objects: {
    /**
     * Reads an object of a granted kind from the API server, with the rights of the plugin's ServiceAccount; undefined
     * if there is none. Shares the budget of `pods.getLive`. Grant: `read.objects`.
     */
    get(object: ObjectRef): any;
    /** Stages the replicas of an object of a granted kind, such as a Deployment. Grant: `write.scale`. */
    scale(object: ObjectRef, replicas: number): number;
  };

  export const events: {
    /**
     * Stages a Kubernetes Event about a Pod. `type` is "Normal" and `action` is "Reconcile" by default; `reason` and
     * `action` are one UpperCamelCase word each. Grant: `write.events`.
     */
    emit(target: Target, event: Event): void;
  };

  export interface Event {
    type?: "Normal" | "Warning";
    reason: string;
    action?: string;
    note: string;
  }

  /**
   * A small store that all runs of the plugin share; its values are stored as JSON and may be lost. Data that must
   * last belongs on the object. A put takes effect at once, even if the run throws later.
   */
  export const state: {
    get(key: string): any;
    /** Returns the value with its version, for `putIf`. */
    entry(key: string): { value: any; version: number } | undefined;
    put(key: string, value: any): void;
    /** Stores the value if the present version is `expected`, 0 for an absent key; returns whether it was. */
    putIf(key: string, value: any, expected: number): boolean;
    /** Stores what `change` returns for the present value, and returns it. `change` may be called more than once. */
    update<T>(key: string, change: (present: T | undefined) => T): T;
    remove(key: string): void;
    /** Removes the key if the present version is `expected`; returns whether it was. */
    removeIf(key: string, expected: number): boolean;
  };

  type Line = (message: string, fields?: Record<string, unknown>) => void;

  /** The plugin's log. The functions of `console` write to it too. */
  export const log: { debug: Line; info: Line; warn: Line; error: Line };

  /** A refused call. A run that ends with `not-granted` or `invalid` is not retried before the Pod changes. */
  export class CallError extends Error {
    code: "not-granted" | "over-budget" | "invalid" | "unavailable";
  }

  /** An error after which the run waits for a change, because a retry on the same data cannot succeed. */
  export class TerminalError extends Error {}
}
