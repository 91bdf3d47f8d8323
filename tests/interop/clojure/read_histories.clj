;; Reads histories as Jepsen stores them, one map after the other, and asks of each what
;; jepsen.history and Elle's list-append ask. Of each file it prints one line: why it is refused, or,
;; as JSON, for each operation how it ended and with what value.

(require '[clojure.edn :as edn] '[clojure.java.io :as io] '[clojure.string :as string])

(defn all-of [file]
  (with-open [in (java.io.PushbackReader. (io/reader file :encoding "UTF-8"))]
    (vec (take-while #(not= % ::end) (repeatedly #(edn/read {:eof ::end} in))))))

(defn ask [holds why what]
  (when-not holds (throw (ex-info (str why ": " (pr-str what)) {}))))

(defn micro-operation? [type mop]
  (and (vector? mop) (= 3 (count mop))
       (let [[f k v] mop]
         (and (string? k)
              (case f
                :append (integer? v)
                :r (if (= type :ok) (and (vector? v) (every? integer? v)) (nil? v))
                false)))))

(defn transaction? [{:keys [type f value]}]
  (and (= f :txn) (vector? value) (seq value) (every? #(micro-operation? type %) value)))

;; An operation as it is before anybody knows what was read.
(defn asked [value] (mapv (fn [[f k v]] [f k (when (= f :append) v)]) value))

(defn check-alone [history]
  (doseq [[number {:keys [index type process time] :as op}] (map-indexed vector history)]
    (ask (= index number) "indexes are not 0, 1, 2" op)
    (ask (#{:invoke :ok :fail :info} type) "no type of Jepsen's" op)
    (ask (nat-int? process) "a process is a number for a client" op)
    (ask (nat-int? time) "a time is nanoseconds since the start" op)
    (ask (transaction? op) "neither appends nor reads" op)))

(defn check-together [history]
  (doseq [[one next] (partition 2 1 history)]
    (ask (<= (:time one) (:time next)) "time goes back" next))
  (let [begun (filter #(= :invoke (:type %)) history)
        appends (for [op begun, [f k v] (:value op) :when (= f :append)] [k v])]
    (doseq [[append times] (frequencies appends)]
      (ask (= 1 times) "a value is appended twice" append))))

;; Each end with its begin. A process whose operation has no known end is gone.
(defn paired [history]
  (loop [ops history, busy {}, gone #{}, pairs []]
    (if-let [{:keys [type process value] :as op} (first ops)]
      (let [begin (busy process)]
        (if (= type :invoke)
          (do (ask (not (or begin (gone process))) "a process that is busy or gone begins" op)
              (recur (rest ops) (assoc busy process op) gone pairs))
          (do (ask begin "an end without a begin" op)
              (ask (= (asked value) (asked (:value begin))) "an end of another operation" op)
              (recur (rest ops) (dissoc busy process)
                     (if (= type :info) (conj gone process) gone)
                     (conj pairs [type value])))))
      pairs)))

(defn json [value]
  (cond (vector? value) (str "[" (string/join "," (map json value)) "]")
        (keyword? value) (pr-str (name value))
        (nil? value) "null"
        :else (pr-str value)))

(doseq [file *command-line-args*]
  (println (try (let [history (all-of file)]
                  (check-alone history)
                  (check-together history)
                  (json (paired history)))
                (catch RuntimeException e (str "refused: " (ex-message e))))))
