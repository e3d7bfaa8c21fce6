// French.

export default {
  "title": "Modèles",
  "close": "Fermer",
  "device": "Cet appareil : {memory} ; {gpu} ; {free} de stockage libres.",
  "device.memory": "{bytes} de mémoire",
  "device.memory.most": "au moins {bytes} de mémoire",
  "device.memory.unknown": "mémoire inconnue de ce navigateur",
  "device.gpu": "WebGPU avec des tampons jusqu’à {bytes}",
  "device.cpu": "pas de WebGPU, le processeur calcule donc",
  "address": "Identifiant du hub ou adresse",
  "address.hint": "owner/repo, owner/repo:Q4_K_M, owner/repo/fichier.gguf, owner/repo@revision ou une URL",
  "address.open": "Ouvrir",
  "address.images": "Avec la partie visuelle du modèle (mmproj), s’il y en a une, pour des images",
  "drop": "Déposez ici un fichier .gguf, ses parties ou un dossier, avec un fichier mmproj pour les images",
  "drop.files": "Choisir des fichiers",
  "drop.folder": "Choisir un dossier",
  "stored": "Sur cet appareil",
  "stored.none": "Aucun modèle n’est encore stocké.",
  "stored.gone": "{name} a été supprimé dans un autre onglet : téléchargez-le à nouveau.",
  "stored.total": "{used} stockés, {free} libres. {kept}",
  "stored.kept": "Le navigateur les garde jusqu’à ce que vous les supprimiez.",
  "stored.evictable": "Le navigateur peut les supprimer quand le disque est plein.",
  "stored.partial": "{done} sur {total}",
  "known": "Petits modèles connus",
  "known.need": "{bytes}, {memory} de mémoire avec un contexte de {context}",
  "verdict.fits": "convient à cet appareil",
  "verdict.tight": "peut être trop grand pour cet appareil",
  "verdict.large": "trop grand pour cet appareil",
  "verdict.unknown": "",
  "open": "Ouvrir",
  "open.label": "Ouvrir {name}",
  "resume": "Reprendre",
  "resume.label": "Reprendre le téléchargement de {name}",
  "download": "Télécharger",
  "download.label": "Télécharger {name}",
  "delete": "Supprimer",
  "delete.label": "Supprimer {name}",
  "delete.sure": "Supprimer {bytes} ?",
  "cancel": "Annuler",
  "cancel.label": "Annuler le téléchargement de {name}",
  "progress.label": "Téléchargement de {name}",
  "progress.waiting": "Recherche de {name}",
  "progress.line": "{done} sur {total} · {rate}/s · encore {left}",
  "progress.start": "{done} sur {total}",
  "progress.unknown": "{done} · {rate}/s",
  "mega": "{n} Mo",
  "giga": "{n} Go",
  "seconds": "{n} s",
  "minutes": "{n} min",
  "hours": "{n} h",
  "cancelled": "Le téléchargement de {name} est arrêté. Les {done} reçus restent, et il peut reprendre.",
  "note.stored": "{name} est téléchargé ; « Modèles » l’ouvre.",
  "note.failed": "Le téléchargement de {name} a échoué. {why}",
  "note.default": "{repository} n’a pas de {preferred} ; {name} est utilisé.",
  "note.tower": "{repository} a les fichiers mmproj {names} ; {name} est utilisé.",
  "note.offline": "{hub} est injoignable ; {name}, déjà stocké, est utilisé.",
  "names.more": "{names} et {n} autres",
  "several.quant": "pour {quant}",
  "several.untagged": "sans quantification dans le nom",

  "error.address": "« {text} » n’est ni un identifiant du hub ni une adresse ; attendu : owner/repo, "
    + "owner/repo:QUANT ou une URL.",
  "error.scheme": "« {text} » n’est pas l’adresse d’un serveur ; attendu : http:// ou https://. Un fichier "
    + "de cet appareil peut être déposé ici.",
  "error.no-name": "« {text} » ne désigne aucun fichier ; attendu : une adresse comme "
    + "https://models.example/model.gguf.",
  "error.login": "L’adresse contient un nom d’utilisateur ou un mot de passe, qu’une page n’envoie pas ; "
    + "téléchargez le fichier et déposez-le ici.",
  "error.percent": "« {text} » a un signe pour cent qui ne commence aucun code UTF-8 valable ; écrivez %25 "
    + "pour le signe lui-même.",
  "error.revision": "Révision « {revision} » non valable ; attendu : une branche, une étiquette ou "
    + "un commit.",
  "error.file-name": "{repository} contient le nom de fichier dangereux « {name} » ; rien n’a été chargé.",
  "error.no-quant": "{repository} n’a pas de {quant} ; il a {known}.",
  "error.no-quant-files": "{repository} n’a pas de {quant} ; ses fichiers sont {known}.",
  "error.several": "{repository} a {n} fichiers {selection} : {files} ; nommez-en un après les deux-points.",
  "error.no-gguf": "{repository} n’a aucun fichier .gguf ; choisissez un dépôt GGUF, ou convertissez-le "
    + "avec `camelid convert`.",
  "error.parts-absent": "Il manque {files} des {n} fichiers du modèle dans {repository} ; choisissez une "
    + "autre quantification, ou attendez la fin de la mise en ligne.",
  "error.gated": "{repository} est protégé ou privé, et cette page n’envoie aucun jeton ; téléchargez-le "
    + "avec `camelid pull`, puis déposez le fichier ici.",
  "error.repository": "{hub} n’a pas de dépôt {repository}, ou il est privé ; vérifiez le nom.",
  "error.no-revision": "{repository} n’a pas de révision « {revision} » ; {hub}/{repository}/tree/main "
    + "montre les branches et les étiquettes.",
  "error.unreachable": "{place} est injoignable : cet appareil est hors ligne, le serveur ne répond pas, ou "
    + "il refuse les requêtes d’autres sites (CORS). Réessayez plus tard, ou téléchargez le fichier et "
    + "déposez-le ici.",
  "error.policy": "La politique de cette page n’autorise pas {place} ; son serveur l’autorise avec `camelid "
    + "web --connect {place}`. Ou téléchargez le fichier et déposez-le ici.",
  "error.status": "{url} : le serveur a répondu {status}. {advice}",
  "advice.missing": "Vérifiez l’adresse.",
  "advice.refused": "Le fichier demande un compte ; téléchargez-le sur le site et déposez-le ici.",
  "advice.later": "Réessayez plus tard.",
  "advice.none": "Attendu : 200 ou 206.",
  "error.listing": "{hub} n’est pas un hub de modèles : sa réponse n’a pas de commit ou pas de fichiers.",
  "error.range": "{url} : octets {from} à {to} demandés, le serveur a envoyé {got} ; téléchargez le fichier "
    + "et déposez-le ici.",
  "error.cut": "{name} : la connexion a pris fin après {done} sur {total}. Reprenez le téléchargement.",
  "error.cut-whole": "{name} : la connexion a pris fin après {done}, et ce serveur n’envoie pas de parties "
    + "d’un fichier. Réessayez ; le téléchargement reprend du début.",
  "error.changed": "{name} a changé sur le serveur pendant le téléchargement, et ses parties ont été "
    + "supprimées. Téléchargez-le de nouveau.",
  "error.hash": "{name} est arrivé endommagé et a été supprimé : son sha256 est {got}, attendu : {want}. "
    + "Téléchargez-le de nouveau ; si cela persiste, un proxy est peut-être en cause.",
  "error.quota": "{name} demande encore {need}, mais ce navigateur accorde {free} à ce site (sur {quota}). "
    + "Supprimez un modèle stocké, ou libérez de l’espace sur le disque.",
  "error.full": "{name} demande encore {need} en plus des {done} stockés, et le stockage du navigateur ou le "
    + "disque est plein. Supprimez un modèle stocké, ou libérez de l’espace, puis téléchargez-le de nouveau.",
  "error.full-unsized": "{name} ne tient pas : le stockage du navigateur ou le disque est plein après "
    + "{done}, et le serveur ne dit pas la taille du fichier. Supprimez un modèle stocké, ou libérez de "
    + "l’espace, puis téléchargez-le de nouveau.",
  "error.no-store": "Ce navigateur ne garde aucun fichier pour cette page ({reason}), peut-être dans une "
    + "fenêtre privée. Utilisez une fenêtre ordinaire, ou déposez un fichier ici.",
  "error.busy": "{name} est en cours de téléchargement dans un autre onglet ; arrêtez-le d’abord là-bas.",
  "error.drop-empty": "Il n’y a pas de fichier .gguf parmi ces fichiers.",
  "error.drop-several": "Plusieurs modèles à la fois : {names}. Ouvrez un modèle, ou toutes les parties d’un "
    + "modèle.",
  "error.drop-towers": "Plusieurs fichiers mmproj à la fois : {names}. Choisissez-en un à côté du modèle.",
  "error.drop-tower-alone": "{name} n’est que la partie visuelle d’un modèle. Ouvrez-le avec son modèle.",
  "error.drop-part": "{name} est une partie sur {n} ; il manque : {missing}. Ouvrez toutes les parties "
    + "ensemble, ou leur dossier.",
  "error.unforeseen": "{message}",
};
