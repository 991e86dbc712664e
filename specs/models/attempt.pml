/* One attempt of `masked` over a lossy, reordering network, with a server that follows its table and may be silent.
 *
 * Phases and moves are those of the transition tables (specs/machines.md), and the test of this file compares them. A message
 * stays under way until it is taken, in any order, or never: then it is lost. A deadline passes at any time, for each
 * party by itself. A client that crashes is out of the attempt, whatever became of its disk, and what it sent may still
 * arrive: it does what one does whose deadline passes. Messages that change nothing are left out, and so is
 * `loss`, which leads where a deadline leads.
 *
 * Every attempt ends: nobody is stuck before it is closed (no deadlock), and no run goes round in a circle.
 */

#include "common.pml"

mtype = { advertising, sharing, masking, awaiting_survivors, awaiting_result, checking };     /* clients */
mtype = { gathering_keys, gathering_shares, collecting, gathering_releases, unmasking };   /* the server */
mtype = { voting, certifying, closed };                                            /* both */

mtype server = gathering_keys;
mtype client[PARTIES] = advertising;
byte sent = EVERYONE;        /* up: whose message of the server's phase is under way */
byte taken;                  /* up: whose message of this phase the server has */
byte part = EVERYONE;        /* who is still in: the senders of the phase before */
byte told;                   /* down: who is still to be told of the server's phase */
byte deaf;                   /* whom the word of the end never reaches: clients are alike, so the first few */
byte told_end;               /* down: who is still to be told that the attempt is closed */

#define server_moves(from, trigger, to) assert(server == from); server = to
#define client_moves(me, from, trigger, to) assert(client[me] == from); client[me] = to

/* Enough to go on with, and all that can come. */
#define ENOUGH (SIZE(taken) >= THRESHOLD(PARTIES))
#define ALL ((taken & part) == part)

inline tell() { part = taken; told = taken; taken = 0; sent = 0 }
inline hear_nothing() { part = 0; told = 0; taken = 0; sent = 0 }
inline tell_everyone() { part = EVERYONE; told = EVERYONE; taken = 0; sent = 0 }
inline end_attempt() { hear_nothing(); told_end = EVERYONE & ~deaf }

inline take(from) { sent = sent & ~BIT(from); taken = taken | BIT(from) }

proctype Server() {
  do
  :: server == closed -> break
  :: atomic { HAS(sent, 0) -> take(0) }
  :: atomic { HAS(sent, 1) -> take(1) }
  :: atomic { HAS(sent, 2) -> take(2) }
  :: atomic { HAS(sent, 3) -> take(3) }
  :: atomic { server == gathering_keys && ALL -> server_moves(gathering_keys, RoundKeys, gathering_shares); tell() }
  :: atomic { server == gathering_shares && ALL -> server_moves(gathering_shares, SealedShares, collecting); tell() }
  :: atomic { server == collecting && ALL -> server_moves(collecting, MaskedInput, voting); tell() }
  :: atomic { server == voting && ENOUGH -> server_moves(voting, SurvivorSignature, gathering_releases); tell() }
  :: atomic { server == gathering_releases && ALL -> server_moves(gathering_releases, ReleasedShares, unmasking); hear_nothing() }
  :: atomic { server == unmasking -> server_moves(unmasking, work, certifying); tell_everyone() }
  :: atomic { server == unmasking -> server_moves(unmasking, work, closed); end_attempt() }
  :: atomic { server == certifying && ALL -> server_moves(certifying, SumVote, closed); end_attempt() }
  :: atomic { server == certifying -> server_moves(certifying, deadline, closed); end_attempt() }
  :: atomic { server == gathering_keys && ENOUGH -> server_moves(gathering_keys, deadline, gathering_shares); tell() }
  :: atomic { server == gathering_keys && !ENOUGH -> server_moves(gathering_keys, deadline, closed); end_attempt() }
  :: atomic { server == gathering_shares && ENOUGH -> server_moves(gathering_shares, deadline, collecting); tell() }
  :: atomic { server == gathering_shares && !ENOUGH -> server_moves(gathering_shares, deadline, closed); end_attempt() }
  :: atomic { server == collecting && ENOUGH -> server_moves(collecting, deadline, voting); tell() }
  :: atomic { server == collecting && !ENOUGH -> server_moves(collecting, deadline, closed); end_attempt() }
  :: atomic { server == voting && ENOUGH -> server_moves(voting, deadline, gathering_releases); tell() }
  :: atomic { server == voting && !ENOUGH -> server_moves(voting, deadline, closed); end_attempt() }
  :: atomic { server == gathering_releases && ENOUGH -> server_moves(gathering_releases, deadline, unmasking); hear_nothing() }
  :: atomic { server == gathering_releases && !ENOUGH -> server_moves(gathering_releases, deadline, closed); end_attempt() }
  od
}

/* Whether the server's last word is for this client; one that is out of the attempt is told nothing more. */
#define TOLD(me, phase) (HAS(told, me) && server == phase)

/* An answer reaches a server that has gone on, or is gone, in vain. */
inline hear(me) { told = told & ~BIT(me) }
inline answer(me, phase) {
  if
  :: server == phase -> sent = sent | BIT(me)
  :: else
  fi
}

proctype Client(byte me) {
  do
  :: client[me] == closed -> break
  :: atomic { client[me] == advertising && TOLD(me, gathering_shares) ->
       client_moves(me, advertising, CohortKeys, sharing); hear(me); answer(me, gathering_shares) }
  :: atomic { client[me] == sharing && TOLD(me, collecting) -> client_moves(me, sharing, DeliveredShares, masking); hear(me) }
  :: atomic { client[me] == masking -> client_moves(me, masking, work, awaiting_survivors); answer(me, collecting) }
  :: atomic { client[me] == awaiting_survivors && TOLD(me, voting) ->
       client_moves(me, awaiting_survivors, SurvivorList, voting); hear(me); answer(me, voting) }
  :: atomic { client[me] == voting && TOLD(me, gathering_releases) ->
       client_moves(me, voting, SurvivorProof, awaiting_result); hear(me); answer(me, gathering_releases) }
  :: atomic { client[me] == advertising && TOLD(me, certifying) -> client_moves(me, advertising, SumOpened, checking); hear(me) }
  :: atomic { client[me] == sharing && TOLD(me, certifying) -> client_moves(me, sharing, SumOpened, checking); hear(me) }
  :: atomic { client[me] == masking && TOLD(me, certifying) -> client_moves(me, masking, SumOpened, checking); hear(me) }
  :: atomic { client[me] == awaiting_survivors && TOLD(me, certifying) -> client_moves(me, awaiting_survivors, SumOpened, checking); hear(me) }
  :: atomic { client[me] == voting && TOLD(me, certifying) -> client_moves(me, voting, SumOpened, checking); hear(me) }
  :: atomic { client[me] == awaiting_result && TOLD(me, certifying) -> client_moves(me, awaiting_result, SumOpened, checking); hear(me) }
  :: atomic { client[me] == checking -> client_moves(me, checking, work, certifying); answer(me, certifying) }
  :: atomic { client[me] == checking && HAS(told_end, me) -> client_moves(me, checking, work, closed) }
  :: atomic { client[me] == checking && HAS(told_end, me) -> client_moves(me, checking, RoundClosed, closed) }
  :: atomic { client[me] == certifying && HAS(told_end, me) -> client_moves(me, certifying, RoundClosed, closed) }
  :: atomic { client[me] == checking -> client_moves(me, checking, deadline, closed) }
  :: atomic { client[me] == certifying -> client_moves(me, certifying, deadline, closed) }
#ifdef BUG_RENEWED_DEADLINE
  :: atomic { client[me] == voting && !HAS(told, me) -> told = told | BIT(me) }     /* the list once more */
  :: atomic { client[me] == voting && HAS(told, me) -> told = told & ~BIT(me) }     /* which puts the deadline off */
#endif
  :: atomic { client[me] == advertising && HAS(told_end, me) -> client_moves(me, advertising, RoundClosed, closed) }
  :: atomic { client[me] == sharing && HAS(told_end, me) -> client_moves(me, sharing, RoundClosed, closed) }
  :: atomic { client[me] == masking && HAS(told_end, me) -> client_moves(me, masking, RoundClosed, closed) }
  :: atomic { client[me] == awaiting_survivors && HAS(told_end, me) -> client_moves(me, awaiting_survivors, RoundClosed, closed) }
  :: atomic { client[me] == voting && HAS(told_end, me) -> client_moves(me, voting, RoundClosed, closed) }
  :: atomic { client[me] == awaiting_result && HAS(told_end, me) -> client_moves(me, awaiting_result, RoundClosed, closed) }
  :: atomic { client[me] == advertising -> client_moves(me, advertising, deadline, closed) }
  :: atomic { client[me] == sharing -> client_moves(me, sharing, deadline, closed) }
  :: atomic { client[me] == masking -> client_moves(me, masking, deadline, closed) }
  :: atomic { client[me] == awaiting_survivors -> client_moves(me, awaiting_survivors, deadline, closed) }
#ifndef BUG_NO_DEADLINE
  :: atomic { client[me] == voting -> client_moves(me, voting, deadline, closed) }
#endif
  :: atomic { client[me] == awaiting_result -> client_moves(me, awaiting_result, deadline, closed) }
  od
}

init {
  byte party;
  atomic {
    select(party : 0 .. PARTIES);
    deaf = BIT(party) - 1;
    run Server();
    for (party : 0 .. PARTIES - 1) { run Client(party) }
    party = 0
  }
}
