// A prefix that several sequences share is read once for all of them.
//
// The query rows of a group's tokens lie side by side in the lanes of the same columns, and meet each
// block of the shared keys together. What a column has gathered then is left in the workspace, span by
// span; each token takes its lanes of it and goes on alone. As a lane is a row, and each row still
// meets its positions in their order, its bits are what they are alone.
#pragma once
#include <thread>
#include "attention_groups.h"
#include "pool.h"
#include "softmax_amx.h"

#ifdef ANYCHIP_AMX
namespace anychip {
namespace amx {

constexpr int64_t ROOM_TOKENS = 32;  // the workspace holds columns of so many tokens alone

struct Member {  // of a group, or of none: -1; and the token's place in it
  int32_t group, place;
};

// The groups of a call, and where their states lie: [group][span][head] of a line that says whether
// they are there yet, and the columns.
class Sharing {
 public:
  struct Sizes {
    int64_t lanes, dim, block, span, tokens;  // query rows of a token and KV head; tokens of a group at most
    int64_t state() const { return (dim + 2) * LANES; }
  };

  Sharing(const AttentionArgs& args, const Sizes& sizes, float* room, int64_t floats)
      : g(args), s(sizes), room_(room), floats_(floats) {}

  // members: by token.
  void find(const Tile* tiles, int64_t tile_count, Member* members) {
    members_ = members;
    look(tiles, tile_count, s.tokens);
    // Too few tasks: groups of one column, which takes no longer than a token of it alone.
    if (count_ && pieces_ * g.kv_heads < g.pool->threads()) look(tiles, tile_count, LANES / s.lanes);
    if (count_ == 0) return;
    for (int64_t t = 0; t < g.tokens; ++t) members[t] = {-1, 0};
    for (int64_t i = 0; i < count_; ++i) {
      for (int64_t j = 0; j < groups_[i].count; ++j) {
        members[tokens_of(i)[j]] = {static_cast<int32_t>(i), static_cast<int32_t>(j)};
      }
      for (int64_t j = 0; j < spans(i) * g.kv_heads; ++j) *flag(part(i, j / g.kv_heads, j % g.kv_heads)) = 0;
    }
  }

  int64_t pieces() const { return pieces_; }  // spans of all groups
  int64_t widest() const { return widest_; }  // columns of a group and KV head at most
  int64_t tokens(int64_t group) const { return groups_[group].count; }
  int64_t shared(int64_t group) const { return groups_[group].shared; }
  const int32_t* tokens_of(int64_t group) const { return found_.tokens + groups_[group].first; }
  Member member(int64_t token) const { return count_ ? members_[token] : Member{-1, 0}; }

  // The group of a piece; what remains of the piece is its span.
  int64_t group_of(int64_t* piece) const {
    int64_t group = 0;
    for (; *piece >= spans(group); ++group) *piece -= spans(group);
    return group;
  }

  // States of a group's columns of one KV head, to be filled; then to be told of.
  float* states(int64_t group, int64_t span, int64_t head) const { return part(group, span, head) + LANES; }
  void done(int64_t group, int64_t span, int64_t head) const {
    __atomic_store_n(flag(part(group, span, head)), 1, __ATOMIC_RELEASE);
  }

  // A token's lanes of its group's states as columns of its own. Waits for them: tasks are taken in
  // order, so that somebody is at them.
  void take(Member member, int64_t span, int64_t head, float* into) const {
    const float* from = part(member.group, span, head);
    for (int64_t spins = 0; !__atomic_load_n(flag(from), __ATOMIC_ACQUIRE); ++spins) {
      if (spins < 10000) {
        _mm_pause();
      } else {
        std::this_thread::yield();
      }
    }
    int64_t width = columns(groups_[member.group].count);
    for (int64_t done = 0; done < s.lanes; done += LANES, into += s.state()) {
      int64_t lane = member.place * s.lanes + done, column = lane / LANES;
      take_lanes(from + LANES + column * s.state(), column + 1 < width, lane % LANES, s.lanes - done, into);
    }
  }

 private:
  int64_t columns(int64_t tokens) const { return (tokens * s.lanes + LANES - 1) / LANES; }
  int64_t spans(int64_t group) const { return (groups_[group].shared + s.span - 1) / s.span; }
  int64_t part_size(int64_t group) const { return columns(groups_[group].count) * s.state() + LANES; }
  float* part(int64_t group, int64_t span, int64_t head) const {
    return room_ + starts_[group] + (span * g.kv_heads + head) * part_size(group);
  }
  static int32_t* flag(const float* part) { return reinterpret_cast<int32_t*>(const_cast<float*>(part)); }

  void look(const Tile* tiles, int64_t tile_count, int64_t most) {
    count_ = pieces_ = 0;
    widest_ = 1;
    found_.find(g, tiles, tile_count, s.block, most);
    for (int64_t i = 0; i < found_.count; ++i) place(found_.groups[i]);
  }

  // Keeps a group where its states find room.
  void place(const Group& group) {
    groups_[count_] = group;
    int64_t start = count_ ? starts_[count_ - 1] + spans(count_ - 1) * g.kv_heads * part_size(count_ - 1) : 0;
    if (start + spans(count_) * g.kv_heads * part_size(count_) > floats_) return;
    starts_[count_] = start;
    pieces_ += spans(count_);
    widest_ = std::max(widest_, columns(group.count));
    ++count_;
  }

  // `count` lanes from `first` on of a column and the next one; the rest is as where nothing was seen.
  void take_lanes(const float* from, bool next, int64_t first, int64_t count, float* into) const {
    const float* beside = next ? from + s.state() : from;
    __mmask16 there = static_cast<__mmask16>(count < LANES ? (1 << count) - 1 : 0xffff);
    __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int32_t>(first)));
    for (int64_t i = 0; i < s.state(); i += LANES) {
      V x = _mm512_permutex2var_ps(vload(from + i), lanes, vload(beside + i));
      vstore(into + i, _mm512_mask_mov_ps(vset(i ? 0.0f : -INF), there, x));
    }
  }

  const AttentionArgs& g;
  Sizes s;
  float* room_;
  int64_t floats_, count_ = 0, pieces_ = 0, widest_ = 1;
  Member* members_ = nullptr;
  Groups found_;
  Group groups_[MOST_SHARING / 2];
  int64_t starts_[MOST_SHARING / 2];
};

}  // namespace amx
}  // namespace anychip
#endif
