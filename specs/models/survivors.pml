/* One attempt after its uploads: which shares a lying server gets by showing survivor lists.
 *
 * The server is the network: it shows any list and any proof that it can make to anyone at any time, or never. Corrupt
 * participants sign every list and hand over every share. Never does the server hold what rebuilds both the self mask
 * and the masking key of an honest participant, and no honest participant gives away a share of both. Whatever is rebuilt
 * follows one list that enough have signed.
 */

#include "common.pml"

mtype = { awaiting_survivors, voting, awaiting_result, closed };

mtype client[PARTIES] = awaiting_survivors;
byte adopted[PARTIES];       /* in memory: the one list */
byte on_disk[PARTIES];
byte signers[16];            /* of each list, as the server has them */
byte self_shares[PARTIES];   /* of each target: who released one */
byte key_shares[PARTIES];
byte crashed;
hidden byte target, self_rebuilt, key_rebuilt, agreed;    /* of single steps, not of the state */

#define SIGNED(list) (signers[list] | (CORRUPT & (list)))
#define PROVED(list) (SIZE(SIGNED(list)) >= THRESHOLD(PARTIES))
#define REBUILT(shares) (SIZE((shares) | CORRUPT) >= THRESHOLD(PARTIES))

inline adopt(me, list) {
  adopted[me] = list;
#ifndef BUG_SIGNS_BEFORE_STORING
  on_disk[me] = list;
#endif
}

inline require_one_list() {
  self_rebuilt = 0; key_rebuilt = 0; agreed = 0;
  for (target : 0 .. HONEST - 1) {
    self_rebuilt = self_rebuilt | (REBUILT(self_shares[target]) << target);
    key_rebuilt = key_rebuilt | (REBUILT(key_shares[target]) << target)
  }
  for (target : 1 .. EVERYONE) {
    if
    :: PROVED(target) && INSIDE(self_rebuilt, target) && (key_rebuilt & target) == 0 -> agreed = 1
    :: else
    fi
  }
  assert(self_rebuilt == 0 || agreed)
}

inline release(me, list) {
  for (target : 0 .. PARTIES - 1) {
    if
    :: HAS(list, target) -> self_shares[target] = self_shares[target] | BIT(me)
    :: else -> key_shares[target] = key_shares[target] | BIT(me)
    fi
    if
    :: target < HONEST ->
      assert((self_shares[target] & key_shares[target]) == 0);
      assert(!(REBUILT(self_shares[target]) && REBUILT(key_shares[target])))
    :: else
    fi
  }
  require_one_list()
}

inline crash(me) {
  crashed = crashed | BIT(me);
  if
  :: adopted[me] = on_disk[me];     /* the disk is there: the last written step is continued */
     if
     :: on_disk[me] == 0 -> client[me] = awaiting_survivors
     :: else
     fi
  :: adopted[me] = 0; client[me] = closed    /* the disk is lost, and with it every share */
  fi
}

proctype Participant(byte me) {
  byte list;
end:
  do
  :: atomic { client[me] == awaiting_survivors ->
       select(list : 1 .. EVERYONE);
       if
       :: HAS(list, me) && SIZE(list) >= SMALLEST_COHORT -> adopt(me, list); client[me] = voting
       :: else
       fi
       list = 0 }
#ifdef BUG_ADOPTS_AGAIN
  :: atomic { client[me] == awaiting_result ->
       select(list : 1 .. EVERYONE);
       if
       :: HAS(list, me) && SIZE(list) >= SMALLEST_COHORT -> adopt(me, list); client[me] = voting
       :: else
       fi
       list = 0 }
#endif
  :: atomic { client[me] == voting && !HAS(signers[adopted[me]], me) ->
       signers[adopted[me]] = signers[adopted[me]] | BIT(me) }
#ifdef BUG_NO_PROOF
  :: atomic { client[me] == voting && HAS(signers[adopted[me]], me) ->
#else
  :: atomic { client[me] == voting && PROVED(adopted[me]) ->
#endif
       release(me, adopted[me]); client[me] = awaiting_result }
  :: atomic { client[me] != closed && !HAS(crashed, me) -> crash(me) }
  od
}

init {
  byte party;
  atomic {
    for (party : 0 .. HONEST - 1) { run Participant(party) }
    party = 0
  }
}
