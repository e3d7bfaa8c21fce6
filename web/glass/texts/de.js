// German.

export default {
  "title": "Glaskasten",
  "close": "Schließen",
  "copy": "Bericht kopieren",
  "copied": "Kopiert",
  "copy.refused": "Der Browser hat abgelehnt; bitte den Text markieren",
  "refresh": "Aktualisieren",
  "measuring": "Messung läuft…",
  "plan": "Plan",
  "times": "Zeit",
  "cache": "KV-Cache",
  "tokens": "Tokens",
  "parity": "Parität",
  "race": "Rennen",
  "entry": "Programm",
  "entry.decode": "Decode: eine Zeile",
  "entry.mixed": "Prefill: ein Block von Zeilen",
  "plan.summary":
    "{ops} Ops, {dispatches} Dispatches, {bytes} und {flops} MFLOP in einem Schritt mit {rows} " +
    "Zeilen.",
  "number": "Nr.",
  "op": "Op",
  "shapes": "Formen",
  "weights": "Gewichte",
  "bytes": "Bytes",
  "dispatches": "Dispatches",
  "source": "Op {number}: {op}",
  "source.compiled": "Ein Kernel des WebAssembly-Moduls, ohne WGSL.",
  "times.held": "Zeilen im Cache",
  "times.measure": "Messen",
  "times.about":
    "Jede Op eines Decode-Schritts, allein und wiederholt. Wiederholte Ops finden kleine Gewichte und " +
    "die Zeilen des KV-Caches in den Caches des Geräts.",
  "times.summary": "{time} und {bytes} in allen Ops, {rate} GB/s.",
  "times.timestamps": "Uhr: Zeitstempel des Geräts, vom Browser gerundet; {repeats} Wiederholungen.",
  "times.submissions": "Uhr: wiederholte Aufträge, ohne Zeitstempel des Geräts; {repeats} Wiederholungen.",
  "time": "Zeit",
  "gbps": "GB/s",
  "alike": "Gleiche Ops",
  "group": "Gruppe",
  "kv_type": "Typ",
  "page": "Seite",
  "held": "belegt",
  "shared": "geteilt",
  "cached": "im Cache",
  "free": "frei",
  "total": "Gesamt",
  "cache.summary": "{bytes} Zustand; {evicted} Seiten bisher verdrängt.",
  "cache.session": "Unterhaltung: {rows} Zeilen in {pages} Seiten des Präfix-Caches.",
  "tokens.about":
    "Die letzte Frage noch einmal, mit der Wahrscheinlichkeit jedes Tokens vor jedem Sampler. Ein " +
    "Token zeigt seine Alternativen.",
  "tokens.none": "Die Unterhaltung hat noch keine Frage.",
  "tokens.run": "Mit Kandidaten antworten",
  "tokens.at": "Anstelle von {token} ({probability})",
  "token": "Token",
  "id": "Id",
  "probability": "Wahrscheinlichkeit",
  "parity.about":
    "Führt die Kernel auf diesem Gerät aus und vergleicht sie mit Ergebnissen des Referenz-Backends, " +
    "wie camelid doctor.",
  "parity.run": "Dieses Gerät prüfen",
  "parity.absent": "Diese Site wurde ohne parity.json gebaut; dafür NumPy installieren und neu bauen.",
  "parity.summary": "{passed} bestanden, {failed} fehlgeschlagen, {refused} ohne Kernel.",
  "passed": "bestanden",
  "failed": "fehlgeschlagen",
  "refused": "kein Kernel",
  "case": "Fall",
  "status": "Status",
  "nmse": "NMSE",
  "allowed": "Erlaubt",
  "race.about":
    "Camelid und wllama (llama.cpp) mit derselben Datei und demselben Prompt, greedy, abwechselnd. " +
    "wllama läuft auf dem Prozessor.",
  "race.prompt": "Prompt-Tokens",
  "race.tokens": "Antwort-Tokens",
  "race.run": "Starten",
  "race.loading": "wllama lädt das Modell…",
  "race.round": "Runde {round} von {rounds}…",
  "race.absent":
    "Diese Site wurde ohne wllama gebaut. Mit npm ci, dann python web/build.py kommt es aus " +
    "node_modules.",
  "race.fetch": "Die Datei {address} ist für wllama nicht zu laden: Der Server antwortete {status}.",
  "race.frame":
    "Der Rahmen von wllama antwortet nicht: Sein Skript wurde nicht geladen. Laden Sie die Seite neu.",
  "race.slow": "wllama hat das Modell in {seconds} s nicht geladen. Laden Sie die Seite neu.",
  "race.sizes": "Prompt und Antwort brauchen mindestens 1 und 2 Tokens, zusammen höchstens {context}.",
  "race.unequal":
    "Ungleiche Arbeit: Camelid las {prompt} und schrieb {n} Tokens, wllama las {prompt2} und schrieb " +
    "{n2}.",
  "race.summary":
    "Camelid erreicht das {prefill}-Fache von wllama beim Prefill und das {decode}-Fache beim " +
    "Decode; Mediane aus {rounds} Runden.",
  "side": "Seite",
  "prefill": "Prefill Tok/s",
  "decode": "Decode Tok/s",
};
