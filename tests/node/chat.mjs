// Unit tests of the chat's pure functions: `node chat.mjs NAME` exits with status 0 on success.

import assert from "node:assert/strict";

import { damageOf } from "../../web/chat/checks.js";
import { contentOf, imagesOf, textOf } from "../../web/chat/content.js";
import { calculate } from "../../web/chat/calculator.js";
import { fromFile, toJson, toMarkdown } from "../../web/chat/exchange.js";
import { ageOf } from "../../web/chat/ages.js";
import { Talk } from "../../web/chat/talk.js";
import { faultOf, options, SAMPLING } from "../../web/chat/settings.js";
import { EN } from "../../web/chat/texts/en.js";
import * as tree from "../../web/chat/tree.js";

const user = (content) => ({ role: "user", content });
const answer = (content, more = {}) => ({ role: "assistant", content, ...more });
const shown = (one) => tree.path(one).map(({ message }) => message.content);

const CHECKS = {
  /** Versions of a message keep their branches; a removed branch shows its newest sibling. */
  branches: () => {
    const one = tree.newConversation();
    const first = tree.addNode(one, tree.ROOT, user("a"));
    const reply = tree.addNode(one, first.id, answer("b"));
    tree.addNode(one, reply.id, user("c"));
    const other = tree.addNode(one, tree.ROOT, user("A"));
    assert.deepEqual(shown(one), ["A"]);
    tree.choose(one, other, -1);
    assert.deepEqual(shown(one), ["a", "b", "c"]);
    tree.choose(one, first, -1); // there is none before the first
    assert.deepEqual(tree.place(one, first), { index: 0, n: 2 });
    one.chosen[first.id] = null; // a new answer is due
    assert.deepEqual(shown(one), ["a"]);
    tree.addNode(one, first.id, answer("B"));
    assert.deepEqual(shown(one), ["a", "B"]);
    tree.removeNode(one, first);
    assert.deepEqual(shown(one), ["A"]);
    assert.equal(one.nodes.length, 1);
  },
  /** Two tabs unite: no node is lost, none removed comes back, the later title holds, branches stay shown. */
  tabs: () => {
    const mine = tree.newConversation();
    const first = tree.addNode(mine, tree.ROOT, user("a"));
    const reply = tree.addNode(mine, first.id, answer("b"));
    const theirs = structuredClone(mine);
    tree.addNode(mine, reply.id, user("mine"));
    tree.addNode(theirs, reply.id, user("theirs"));
    tree.setField(theirs, "title", "named", 2);
    tree.setField(mine, "system", "brief", 1);
    const [here, there] = [tree.merged(mine, theirs), tree.merged(theirs, mine)];
    assert.deepEqual([here.title, here.system, here.nodes.length], ["named", "brief", 4]);
    assert.deepEqual([shown(here), shown(there)].map((texts) => texts[2]), ["mine", "theirs"]);
    tree.removeNode(theirs, reply);
    for (const one of [tree.merged(here, theirs), tree.merged(theirs, here)]) {
      assert.deepEqual(shown(one), ["a"]);
      assert.equal(one.nodes.length, 1, "nodes below a removed one are removed");
      assert.deepEqual(tree.merged(one, here).nodes, one.nodes);
    }
  },
  /** A title is the first line of the first question, cut at a word; a search needs all words. */
  titles: () => {
    const one = tree.fromMessages([
      { role: "system", content: "Be brief" },
      user(`${"word ".repeat(20)}\nmore`),
    ]);
    assert.equal(one.system, "Be brief");
    assert.match(one.title, /^(word ){11}word…$/);
    assert.ok(tree.matches(one, "MORE word") && !tree.matches(one, "more words"));
  },
  /** JSON keeps all branches, Markdown the branch that is shown, whatever the texts contain. */
  files: () => {
    const texts = [
      "# a\n\n<!-- camelid:user -->\n## User\n\nb",
      "\\<!-- camelid:user -->",
      "",
      "\n\nx\n\n",
      "-->",
    ];
    const call = { id: "1", type: "function", function: { name: "f", arguments: '{"a": "-->"}' } };
    const one = tree.fromMessages([
      { role: "system", content: texts[0] },
      ...texts.map(user),
      answer("", { tool_calls: [call], reasoning_content: "hm" }),
      { role: "tool", content: "9", tool_call_id: "1" },
    ]);
    tree.addNode(one, tree.ROOT, user("another"));
    one.chosen[tree.ROOT] = one.nodes[0].id;
    const [json] = fromFile(toJson([one]), "a.json");
    assert.deepEqual({ ...json, id: one.id }, one);
    assert.notEqual(json.id, one.id);
    const [markdown] = fromFile(toMarkdown(one), "a.md");
    assert.deepEqual(tree.messagesOf(markdown), tree.messagesOf(one));
    assert.equal(markdown.title, one.title);
  },
  /** Images stay with their message in files; a title is of the text; an address of elsewhere is damage. */
  images: () => {
    const uri = "data:image/png;base64,AA==";
    const content = contentOf("What is this?\nSay it.", [uri, uri]);
    assert.deepEqual([textOf(content), imagesOf(content)], ["What is this?\nSay it.", [uri, uri]]);
    assert.equal(contentOf("a", []), "a");
    const others = [{ type: "image", image: uri }, { type: "image_url", image_url: uri }];
    assert.deepEqual(imagesOf(others), [uri, uri]);
    const one = tree.fromMessages([user(content), answer("a llama"), user(contentOf("", [uri]))]);
    assert.equal(one.title, "What is this?");
    for (const text of [toJson([one]), toMarkdown(one)]) {
      const [found] = fromFile(text, "a");
      assert.deepEqual(tree.messagesOf(found), tree.messagesOf(one));
    }
    const elsewhere = contentOf("a", ["https://evil.example/p.png"]);
    assert.deepEqual(imagesOf(elsewhere), []);
    for (const images of ['["https://evil.example/p.png"]', "7", "[7]"]) {
      const text = `<!-- camelid:user {"images": ${images}} -->\n## User\n\nb\n`;
      assert.throws(() => fromFile(text, "a.md"), { key: "import.field" });
    }
    one.nodes[0].message.content = elsewhere;
    assert.equal(damageOf({ ...one, changed: 1 }), "nodes[0]");
  },
  /** Damage is refused by its place: a node before its parent or twice, wrong fields of its message or facts. */
  damage: () => {
    const base = { title: "", system: "", chosen: {} };
    const node = (id, parent, role = "user") => ({ id, parent, message: { role, content: "" } });
    const said = (more) => ({ ...node("a", "root"), message: answer("", more) });
    const bad = [
      [node("a", "b"), node("b", "root")],
      [node("a", "root"), node("a", "root")],
      [node("a", "root", "x")],
      [node("__proto__", "root")],
      [said({ tool_calls: [{ id: "1", function: { name: "f" } }] })],
      [said({ tool_calls: "f" })],
      [said({ content: 7 })],
      [said({ content: [{ type: "image" }] })],
      [said({ reasoning_content: {} })],
      [{ ...node("a", "root"), facts: { rounds: "8" } }],
    ];
    for (const [i, nodes] of bad.entries()) {
      const refused = ({ key, values }) =>
        key === "import.field" && values.where.includes(`nodes[${i === 1 ? 1 : 0}]`);
      assert.throws(() => fromFile(toJson([{ ...base, nodes }]), "a.json"), refused, `${i}`);
    }
    const [whole] = fromFile(toJson([{ ...base, nodes: [said({ tool_calls: null, more: 1 })] }]), "a.json");
    assert.deepEqual(whole.nodes[0].message, answer(""), "null stands for an absent field");
    assert.equal(damageOf(whole), "");
    assert.equal(damageOf({ ...whole, nodes: [{}] }), "nodes[0]");
    for (const facts of ['{"role": "tool"}', '{"tool_calls": 1}', '{"content": "x"}', "{damaged}"]) {
      const file = `<!-- camelid:assistant ${facts} -->\n## Assistant\n\nText\n`;
      assert.throws(() => fromFile(file, "a.md"), ({ values }) => values.where === "a.md:1", facts);
    }
  },
  /** Values of a calculator, and its faults by place. */
  arithmetic: () => {
    const values = {
      "1 + 2 * 3": "7",
      "(1 + 2) * 3": "9",
      "-2^2": "-4",
      "2^3^2": "512",
      "2 ** -1": "0.5",
      "0.1 + 0.2": "0.3",
      "7 % 4 / 2": "1.5",
      "sqrt(16) + max(1, 2, 3)": "7",
      "2 × 3 ÷ 4 − 1": "0.5",
      "1e3": "1000",
      "ln(e)": "1",
      "1/0": "Infinity",
    };
    for (const [expression, value] of Object.entries(values))
      assert.equal(calculate(expression), value, expression);
    for (const wrong of ["", "1 +", "2 3", "(1", "x", "constructor", "sqrt(1, 2)", "1; 2", "0/0"]) {
      assert.throws(() => calculate(wrong), Error, wrong);
    }
    assert.throws(() => calculate("(".repeat(5000)), /longer than 2000/);
  },
  /** Values at the ends of each range pass, those beyond are faults; every setting has its texts. */
  ranges: () => {
    for (const [name, { least, most }] of Object.entries(SAMPLING)) {
      assert.equal(faultOf(name, String(least)), null, name);
      assert.equal(faultOf(name, String(least - 1)).key, "settings.fault", name);
      if (most < 1e9) assert.equal(faultOf(name, String(most + 1)).key, "settings.fault", name);
      assert.ok(EN[`settings.${name}`] && EN[`settings.${name}.about`], name);
    }
    for (const name of ["tempperature", "constructor", "__proto__"]) {
      assert.equal(faultOf(name, "1").key, "settings.unknown", name);
    }
    assert.deepEqual(options({ temperature: "0.5", top_k: "", seed: "7", model: "a" }), {
      temperature: 0.5,
      seed: 7,
    });
  },
  /** Every language has every text, with the same values in braces. */
  languages: async () => {
    for (const name of ["de", "fr"]) {
      const { default: table } = await import(`../../web/chat/texts/${name}.js`);
      assert.deepEqual(Object.keys(table).sort(), Object.keys(EN).sort(), name);
      const holes = (words) => (words.match(/\{\w+\}/g) ?? []).sort();
      for (const [key, words] of Object.entries(EN))
        assert.deepEqual(holes(table[key]), holes(words), `${name}: ${key}`);
    }
  },
  /** A model that calls a tool in every answer has to answer in words after eight of them. */
  rounds: async () => {
    const one = tree.fromMessages([user("go")]);
    const [session, asked] = scripted();
    const add = (message) => tree.addNode(one, tree.path(one).at(-1).id, message);
    const talk = new Talk({ session: async ({ messages }) => (session.messages.push(...messages), session) });
    const listener = { begin: () => {}, event: () => {}, message: add };
    const result = await talk.answer(one, { options: {}, tools: ["calculator"] }, listener);
    assert.equal(result.rounds, 8);
    assert.deepEqual(
      asked.map(({ tool_choice: choice }) => choice),
      [...Array(8).fill(undefined), "none"],
    );
    assert.deepEqual(shown(one).slice(0, 3), ["go", "", "42"]);
    assert.equal(one.nodes.length, 1 + 2 * 8 + 1);
  },
  /** A stop while a tool runs ends the turn; calls that it stopped have a result, too. */
  stopped: async () => {
    const one = tree.fromMessages([user("go")]);
    const [session, asked] = scripted(2);
    const talk = new Talk({ session: async () => session });
    const notes = [];
    const message = (made, facts) => {
      tree.addNode(one, tree.path(one).at(-1).id, made);
      if (made.role === "tool") (talk.stop(), notes.push([made.content, facts?.finish_reason]));
    };
    const how = { options: {}, tools: ["calculator"] };
    const result = await talk.answer(one, how, { begin: () => {}, event: () => {}, message });
    assert.equal(asked.length, 1, "no further round");
    assert.equal(result.finish_reason, "cancelled");
    assert.deepEqual(notes.map(([, reason]) => reason), [undefined, "cancelled"]);
    assert.match(notes[1][0], /^Error: .*stopped/);
  },
  /** The session of a file replaces the earlier one, which is freed; a damaged file leaves it. */
  sessions: async () => {
    const closed = [];
    const made = (name) => ({ ...scripted()[0], close: async () => closed.push(name) });
    const restore = async (file) => (file === "damaged" ? Promise.reject(new Error(file)) : made(file));
    const talk = new Talk({ session: async () => made("first"), restore });
    const listener = { begin: () => {}, event: () => {}, message: () => {} };
    await talk.answer(tree.fromMessages([user("go")]), { options: {}, tools: [] }, listener);
    await assert.rejects(talk.open("damaged"));
    assert.deepEqual(closed, []);
    await talk.open("second");
    assert.deepEqual(closed, ["first"]);
    await talk.open("third");
    assert.deepEqual(closed, ["first", "second"]);
  },
  /** Headings of the list change at midnight. */
  ages: () => {
    const now = new Date(2026, 5, 15, 12).getTime();
    const days = (n) => new Date(2026, 5, 15 - n, 23).getTime();
    const found = [ageOf(now, now), ...[1, 2, 7, 8].map((n) => ageOf(days(n), now))];
    assert.deepEqual(found, ["today", "yesterday", "week", "week", "earlier"]);
  },
};

/** A session whose answers always call the calculator `nCalls` times, and the options of its turns. */
function scripted(nCalls = 1) {
  const asked = [];
  const call = {
    id: "1",
    type: "function",
    function: { name: "calculator", arguments: '{"expression": "6 * 7"}' },
  };
  const session = {
    messages: [],
    setMessages: async (messages) => (session.messages = [...messages]),
    stream: (_, given) => {
      asked.push(given);
      session.messages.push(answer("", { tool_calls: Array(nCalls).fill(call) }));
      return { completion: Promise.resolve({ usage: {}, timings: {} }), async *[Symbol.asyncIterator]() {} };
    },
  };
  return [session, asked];
}

await CHECKS[process.argv[2]]();
