// The ranking of sentences by the cosine of their embeddings to a query's.

/**
 * @param {number[]} query of length 1
 * @param {number[][]} embeddings of length 1
 * @param {number} most results
 * @returns {{index: number, score: number}[]} the best first; of equal scores the lower index
 */
export function ranked(query, embeddings, most) {
  const scores = embeddings.map((row, index) => ({ index, score: dot(query, row) }));
  return scores.sort((a, b) => b.score - a.score || a.index - b.index).slice(0, most);
}

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}
