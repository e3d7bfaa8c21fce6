// French.

export default {
  "title": "Recherche sémantique",
  "about":
    "Un modèle d’embeddings dans cette page classe {n} phrases selon leur sens. Rien de ce que vous tapez ne quitte cet appareil.",
  "chat": "Retour à la conversation",
  "model": "Ouvrir un modèle d’embeddings",
  "model.hint":
    "Un fichier GGUF, par exemple all-MiniLM-L6-v2 de 25 Mo : camelid convert all-MiniLM-L6-v2 minilm.gguf --type q8_0",
  "query": "Chercher selon le sens",
  "query.placeholder": "someone takes care of bees",
  "empty": "Aucun modèle n’est ouvert",
  "loading": "Chargement de {name}",
  "embedding": "Lecture des phrases : {done} sur {total}",
  "ready": "{model} sur {backend} ({device}), {n} phrases",
  "processor": "Sur le processeur : {why}",
  "setting": "L’adresse donne à {name} la valeur « {value} », qui n’existe pas.",
  "failed": "Le modèle n’est pas utilisable",
  "hint": "Ouvrez un modèle qui calcule des embeddings.",
  "results": "Phrases les plus proches",
  "score": "similarité {score}",
  "found": "{n} phrases",
};
