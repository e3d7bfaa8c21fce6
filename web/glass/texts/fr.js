// French.

export default {
  "title": "Boîte de verre",
  "close": "Fermer",
  "copy": "Copier le rapport",
  "copied": "Copié",
  "copy.refused": "Refusé par le navigateur ; sélectionnez le texte",
  "refresh": "Actualiser",
  "measuring": "Mesure en cours…",
  "plan": "Plan",
  "times": "Temps",
  "cache": "Cache KV",
  "tokens": "Jetons",
  "parity": "Parité",
  "race": "Course",
  "entry": "Programme",
  "entry.decode": "Décodage : une ligne",
  "entry.mixed": "Prefill : un bloc de lignes",
  "plan.summary":
    "{ops} opérations, {dispatches} dispatches, {bytes} et {flops} MFLOP par pas de {rows} " +
    "lignes.",
  "number": "N°",
  "op": "Opération",
  "shapes": "Formes",
  "weights": "Poids",
  "bytes": "Octets",
  "dispatches": "Dispatches",
  "source": "Opération {number} : {op}",
  "source.compiled": "Un noyau du module WebAssembly, sans WGSL.",
  "times.held": "Lignes en cache",
  "times.measure": "Mesurer",
  "times.about":
    "Chaque opération d'un pas de décodage, seule et répétée. Les petits poids et les lignes du cache " +
    "KV restent alors dans les caches.",
  "times.summary": "{time} et {bytes} pour toutes les opérations, {rate} Go/s.",
  "times.timestamps":
    "Horloge : horodatages de l'appareil, arrondis par le navigateur ; {repeats} " +
    "répétitions.",
  "times.submissions":
    "Horloge : soumissions répétées, sans horodatages de l'appareil ; {repeats} " +
    "répétitions.",
  "time": "Temps",
  "gbps": "Go/s",
  "alike": "Opérations égales",
  "group": "Groupe",
  "kv_type": "Type",
  "page": "Page",
  "held": "occupées",
  "shared": "partagées",
  "cached": "en cache",
  "free": "libres",
  "total": "Total",
  "cache.summary": "{bytes} d'état ; {evicted} pages évincées jusqu'ici.",
  "cache.session": "Conversation : {rows} lignes dans {pages} pages du cache de préfixes.",
  "tokens.about":
    "La dernière question encore une fois, avec la probabilité de chaque jeton avant " +
    "échantillonnage. Choisissez un jeton pour ses alternatives.",
  "tokens.none": "La conversation n'a pas encore de question.",
  "tokens.run": "Répondre avec les candidats",
  "tokens.at": "Au lieu de {token} ({probability})",
  "token": "Jeton",
  "id": "Id",
  "probability": "Probabilité",
  "parity.about":
    "Exécute les noyaux sur cet appareil et les compare aux résultats du backend de référence, comme " +
    "camelid doctor.",
  "parity.run": "Vérifier cet appareil",
  "parity.absent": "Ce site a été construit sans parity.json ; reconstruisez-le avec NumPy installé.",
  "parity.summary": "{passed} réussis, {failed} échoués, {refused} sans noyau.",
  "passed": "réussi",
  "failed": "échoué",
  "refused": "sans noyau",
  "case": "Cas",
  "status": "État",
  "nmse": "NMSE",
  "allowed": "Permis",
  "race.about":
    "Camelid et wllama (llama.cpp) avec le même fichier et le même prompt, en glouton, à tour de " +
    "rôle. wllama utilise le processeur.",
  "race.prompt": "Jetons du prompt",
  "race.tokens": "Jetons de la réponse",
  "race.run": "Démarrer",
  "race.loading": "wllama charge le modèle…",
  "race.round": "Tour {round} sur {rounds}…",
  "race.absent":
    "Ce site a été construit sans wllama. Lancez npm ci, puis python web/build.py, qui le prend dans " +
    "node_modules.",
  "race.fetch": "Le fichier {address} ne peut être lu pour wllama : le serveur a répondu {status}.",
  "race.frame": "Le cadre de wllama ne répond pas : son script n’a pu être chargé. Rechargez la page.",
  "race.slow": "wllama n’a pas chargé le modèle en {seconds} s. Rechargez la page et réessayez.",
  "race.sizes": "Le prompt et la réponse ont au moins 1 et 2 jetons, ensemble au plus {context}.",
  "race.unequal": "Travail inégal : Camelid a lu {prompt} et écrit {n} jetons, wllama {prompt2} et {n2}.",
  "race.summary":
    "Camelid fait {prefill}× wllama au prefill et {decode}× au décodage ; médianes de {rounds} " +
    "tours.",
  "side": "Côté",
  "prefill": "Prefill jetons/s",
  "decode": "Décodage jetons/s",
};
