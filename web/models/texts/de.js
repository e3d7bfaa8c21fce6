// German.

export default {
  "title": "Modelle",
  "close": "Schließen",
  "device": "Dieses Gerät: {memory}; {gpu}; {free} Speicherplatz frei.",
  "device.memory": "{bytes} Arbeitsspeicher",
  "device.memory.most": "mindestens {bytes} Arbeitsspeicher",
  "device.memory.unknown": "Arbeitsspeicher diesem Browser unbekannt",
  "device.gpu": "WebGPU mit Puffern bis {bytes}",
  "device.cpu": "kein WebGPU, daher rechnet der Prozessor",
  "address": "Hub-Kennung oder Adresse",
  "address.hint": "owner/repo, owner/repo:Q4_K_M, owner/repo/datei.gguf, owner/repo@revision oder eine URL",
  "address.open": "Öffnen",
  "address.images": "Mit dem Bildteil des Modells (mmproj), falls vorhanden, für Bilder",
  "drop": "Eine .gguf-Datei, ihre Teile oder einen Ordner hier ablegen, für Bilder mit einer mmproj-Datei",
  "drop.files": "Dateien wählen",
  "drop.folder": "Ordner wählen",
  "stored": "Auf diesem Gerät",
  "stored.none": "Noch ist kein Modell gespeichert.",
  "stored.gone": "{name} wurde in einem anderen Tab gelöscht: Bitte erneut herunterladen.",
  "stored.total": "{used} gespeichert, {free} frei. {kept}",
  "stored.kept": "Der Browser behält sie, bis Sie sie löschen.",
  "stored.evictable": "Bei voller Festplatte darf der Browser sie löschen.",
  "stored.partial": "{done} von {total}",
  "known": "Bekannte kleine Modelle",
  "known.need": "{bytes}, {memory} Arbeitsspeicher bei einem Kontext von {context}",
  "verdict.fits": "passt auf dieses Gerät",
  "verdict.tight": "passt vielleicht nicht auf dieses Gerät",
  "verdict.large": "zu groß für dieses Gerät",
  "verdict.unknown": "",
  "open": "Öffnen",
  "open.label": "{name} öffnen",
  "resume": "Fortsetzen",
  "resume.label": "Herunterladen von {name} fortsetzen",
  "download": "Herunterladen",
  "download.label": "{name} herunterladen",
  "delete": "Löschen",
  "delete.label": "{name} löschen",
  "delete.sure": "{bytes} löschen?",
  "cancel": "Abbrechen",
  "cancel.label": "Herunterladen von {name} abbrechen",
  "progress.label": "Herunterladen von {name}",
  "progress.waiting": "{name} wird gesucht",
  "progress.line": "{done} von {total} · {rate}/s · noch {left}",
  "progress.start": "{done} von {total}",
  "progress.unknown": "{done} · {rate}/s",
  "mega": "{n} MB",
  "giga": "{n} GB",
  "seconds": "{n} s",
  "minutes": "{n} min",
  "hours": "{n} h",
  "cancelled": "Das Herunterladen von {name} wurde abgebrochen. {done} bleiben und lassen sich fortsetzen.",
  "note.stored": "{name} ist heruntergeladen; „Modelle“ öffnet es.",
  "note.failed": "Das Herunterladen von {name} ist gescheitert. {why}",
  "note.default": "{repository} hat kein {preferred}; verwendet wird {name}.",
  "note.tower": "{repository} hat die mmproj-Dateien {names}; verwendet wird {name}.",
  "note.offline": "{hub} ist nicht erreichbar; verwendet wird das gespeicherte {name}.",
  "names.more": "{names} und {n} weitere",
  "several.quant": "für {quant}",
  "several.untagged": "ohne Quantisierung im Namen",

  "error.address": "„{text}“ ist weder Hub-Kennung noch Adresse; erwartet wird owner/repo, "
    + "owner/repo:QUANT oder eine URL.",
  "error.scheme": "„{text}“ ist keine Adresse eines Servers; erwartet wird http:// oder https://. Eine Datei "
    + "dieses Geräts lässt sich hier ablegen.",
  "error.no-name": "„{text}“ nennt keine Datei; erwartet wird eine Adresse wie "
    + "https://models.example/model.gguf.",
  "error.login": "Die Adresse enthält Benutzernamen oder Passwort, die eine Seite nicht sendet; laden Sie "
    + "die Datei herunter und legen Sie sie hier ab.",
  "error.percent": "„{text}“ hat ein Prozentzeichen, das keine gültige UTF-8-Kodierung beginnt; schreiben "
    + "Sie %25 für das Zeichen selbst.",
  "error.revision": "Ungültige Revision „{revision}“; erwartet wird ein Branch, Tag oder Commit.",
  "error.file-name": "{repository} nennt den unsicheren Dateinamen „{name}“; nichts wurde geladen.",
  "error.no-quant": "{repository} hat kein {quant}; vorhanden: {known}.",
  "error.no-quant-files": "{repository} hat kein {quant}; vorhandene Dateien: {known}.",
  "error.several": "{repository} hat {n} Dateien {selection}: {files}; nennen Sie eine nach dem "
    + "Doppelpunkt.",
  "error.no-gguf": "{repository} hat keine .gguf-Datei; wählen Sie ein GGUF-Repository, oder wandeln Sie es "
    + "mit `camelid convert` um.",
  "error.parts-absent": "{repository} fehlen {files} von {n} Dateien des Modells; wählen Sie eine andere "
    + "Quantisierung, oder warten Sie, bis alles hochgeladen ist.",
  "error.gated": "{repository} ist geschützt oder privat, und diese Seite sendet kein Token; laden Sie es "
    + "mit `camelid pull` und legen Sie die Datei hier ab.",
  "error.repository": "{hub} hat kein Repository {repository}, oder es ist privat; prüfen Sie den Namen.",
  "error.no-revision": "{repository} hat keine Revision „{revision}“; {hub}/{repository}/tree/main nennt "
    + "Branches und Tags.",
  "error.unreachable": "{place} ist nicht erreichbar: Dieses Gerät ist offline, der Server antwortet nicht, "
    + "oder er lehnt Anfragen fremder Seiten ab (CORS). Versuchen Sie es später, oder laden Sie die Datei "
    + "herunter und legen Sie sie hier ab.",
  "error.policy": "Die Richtlinie dieser Seite erlaubt {place} nicht; ihr Server erlaubt es mit `camelid web "
    + "--connect {place}`. Oder laden Sie die Datei herunter und legen Sie sie hier ab.",
  "error.status": "{url}: Der Server antwortete {status}. {advice}",
  "advice.missing": "Prüfen Sie die Adresse.",
  "advice.refused": "Die Datei braucht ein Konto; laden Sie sie dort herunter und legen Sie sie hier ab.",
  "advice.later": "Versuchen Sie es später.",
  "advice.none": "Erwartet wird 200 oder 206.",
  "error.listing": "{hub} ist kein Modell-Hub: Der Antwort fehlen Commit oder Dateien.",
  "error.range": "{url}: Bytes {from} bis {to} waren verlangt, der Server sandte {got}; laden Sie die Datei "
    + "herunter und legen Sie sie hier ab.",
  "error.cut": "{name}: Die Verbindung endete nach {done} von {total}. Setzen Sie das Herunterladen fort.",
  "error.cut-whole": "{name}: Die Verbindung endete nach {done}, und dieser Server sendet keine Teile einer "
    + "Datei. Versuchen Sie es noch einmal; das Herunterladen beginnt von vorn.",
  "error.changed": "{name} hat sich während des Herunterladens geändert, und die Teile wurden gelöscht. "
    + "Laden Sie es noch einmal.",
  "error.hash": "{name} kam beschädigt an und wurde gelöscht: sein sha256 ist {got}, erwartet wird {want}. "
    + "Laden Sie es noch einmal; bleibt der Fehler, stört vielleicht ein Proxy.",
  "error.quota": "{name} braucht noch {need}, doch dieser Browser gibt dieser Seite {free} (von {quota}). "
    + "Löschen Sie ein gespeichertes Modell, oder schaffen Sie Platz auf der Festplatte.",
  "error.full": "{name} braucht noch {need} zu den gespeicherten {done}, und der Speicher des Browsers oder "
    + "die Festplatte ist voll. Löschen Sie ein gespeichertes Modell, oder schaffen Sie Platz, und laden "
    + "Sie es noch einmal herunter.",
  "error.full-unsized": "{name} passt nicht: Der Speicher des Browsers oder die Festplatte ist nach {done} "
    + "voll, und der Server nennt die Größe der Datei nicht. Löschen Sie ein gespeichertes Modell, oder "
    + "schaffen Sie Platz, und laden Sie es noch einmal herunter.",
  "error.no-store": "Dieser Browser speichert für diese Seite keine Dateien ({reason}), vielleicht in einem "
    + "privaten Fenster. Nehmen Sie ein gewöhnliches Fenster, oder legen Sie eine Datei hier ab.",
  "error.busy": "Ein anderer Tab lädt gerade {name}; brechen Sie dort zuerst ab.",
  "error.drop-empty": "Unter diesen Dateien ist keine .gguf-Datei.",
  "error.drop-several": "Mehrere Modelle auf einmal: {names}. Öffnen Sie ein Modell oder alle Teile eines "
    + "Modells.",
  "error.drop-towers": "Mehrere mmproj-Dateien auf einmal: {names}. Wählen Sie eine neben dem Modell.",
  "error.drop-tower-alone": "{name} ist nur der Bildteil eines Modells. Öffnen Sie die Datei zusammen mit "
    + "dem Modell.",
  "error.drop-part": "{name} ist einer von {n} Teilen; es fehlen: {missing}. Öffnen Sie alle Teile zusammen "
    + "oder ihren Ordner.",
  "error.unforeseen": "{message}",
};
