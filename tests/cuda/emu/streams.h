/* streams: the devices of the stand-in, their streams, events and graphs.
 *
 * Work waits in its stream until the host waits for it, and no longer: a stream runs up to the awaited event. A wait
 * for another stream's event runs that stream up to the event alone. So a missing wait leaves work undone, on the host
 * and on devices. A graph has a lane of every stream that joined its capture; EMU_ORDER 1 begins with the last lane. */
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct Stream;
struct Item {
    std::function<void()> work;
    Stream *other = nullptr;  /* the stream to wait for, until it has done so many items */
    size_t until = 0;
};
struct Graph {
    std::vector<Stream *> streams;  /* in the order in which they joined */
    std::map<Stream *, std::vector<Item>> lanes;
    std::vector<Item> &lane(Stream *s) {
        if (!lanes.count(s)) streams.push_back(s);
        return lanes[s];
    }
};
struct Stream {
    int device;
    std::deque<Item> queue;
    size_t n_done = 0;
    std::shared_ptr<Graph> capture;
    size_t n_added() { return capture ? capture->lane(this).size() : n_done + queue.size(); }
};
struct Event {
    Stream *stream = nullptr;
    std::shared_ptr<Graph> graph;  /* of the capture in which it was recorded */
    size_t at = 0;
};

static void add(Stream *s, Item item) {
    if (s->capture)
        s->capture->lane(s).push_back(std::move(item));
    else
        s->queue.push_back(std::move(item));
}
static void add(Stream *s, std::function<void()> work) { add(s, Item{std::move(work)}); }

static void drain(Stream *s, size_t until) {
    while (s->n_done < until) {
        const Item item = std::move(s->queue.front());
        s->queue.pop_front();
        if (item.other)
            drain(item.other, item.until);
        else
            item.work();
        s->n_done++;
    }
}

struct Run {
    const Graph &graph;
    std::map<Stream *, size_t> done;
    void lane(Stream *s, size_t until) {
        while (done[s] < until) {
            const Item &item = graph.lanes.at(s)[done[s]];
            if (item.other)
                lane(item.other, item.until);
            else
                item.work();
            done[s]++;
        }
    }
    void all() {
        const size_t n = graph.streams.size();
        const char *order = getenv("EMU_ORDER");
        for (size_t i = 0; i < n; i++) {
            Stream *s = graph.streams[order && atoi(order) == 1 ? n - 1 - i : i];
            lane(s, graph.lanes.at(s).size());
        }
    }
};

/* True if another lane waits for the end of every lane but the first. */
static bool is_joined(const Graph &graph) {
    for (size_t i = 1; i < graph.streams.size(); i++) {
        Stream *s = graph.streams[i];
        bool found = false;
        for (auto &other : graph.lanes)
            for (auto &item : other.second) found |= item.other == s && item.until == graph.lanes.at(s).size();
        if (!found) return false;
    }
    return true;
}
