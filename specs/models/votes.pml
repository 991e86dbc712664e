/* Two positions of the chain: which certificates a lying server can put together from votes.
 *
 * The server is the network, and shows any certificate that it can make to anyone, old ones too. Corrupt participants
 * vote for everything. An honest one votes for whatever the server proposes, once per position: that sums are verified
 * only narrows this. Two contents are proposed at each position; others would only take votes from them. Survivors of
 * the first position, who are the electorate of the second, are any set that the server picks, whoever has uploaded.
 * Never are there two certificates at one position.
 *
 * Taken from position.pml: a participant that lost its disk does not upload again at a position where it had uploaded.
 */

#include "common.pml"

#define NONE 2

byte survivors;                    /* of the first position */
byte votes[2];                     /* at the first position: the honest voters of each content */
byte votes_next[2];
byte certified = NONE;             /* the content of the first position that has a certificate */
byte crashed;

bit ahead[PARTIES];                /* whether it holds the state of the second position */
byte voted[PARTIES] = NONE;        /* on disk */
byte voted_next[PARTIES] = NONE;
bit uploaded[PARTIES];             /* at the first position, in the present life */
bit uploaded_ever[PARTIES];
bit fresh[PARTIES];

#define COUNTS(content) (SIZE(votes[content] | CORRUPT) >= THRESHOLD(PARTIES))
#ifdef BUG_ANY_VOTERS
#define COUNTS_NEXT(content) (SIZE(votes_next[content] | CORRUPT) >= THRESHOLD(SIZE(survivors)))
#else
#define COUNTS_NEXT(content) (SIZE((votes_next[content] | CORRUPT) & survivors) >= THRESHOLD(SIZE(survivors)))
#endif

#ifdef BUG_FRESH_VOTES
#define VOTES_FIRST(me) (1)
#define VOTES_NEXT(me) (1)
#else
/* At the first position everyone votes who was there from the start. At the next one a survivor votes if it remembers
 * that it uploaded: to be named is not enough, and neither is to have been at an earlier position. */
#define VOTES_FIRST(me) (!fresh[me])
#define VOTES_NEXT(me) (uploaded[me])
#endif

inline crash(me) {
  crashed = crashed | BIT(me);
  if
#ifdef BUG_VOTES_BEFORE_STORING
  :: voted[me] = NONE; voted_next[me] = NONE
#endif
  :: skip                          /* the disk is there, and with it all that left */
  :: voted[me] = NONE; voted_next[me] = NONE; ahead[me] = 0; uploaded[me] = 0; fresh[me] = 1
  fi
}

proctype Participant(byte me) {
  byte content;
end:
  do
  :: atomic { !ahead[me] && !uploaded[me] && !(fresh[me] && uploaded_ever[me]) ->
       uploaded[me] = 1; uploaded_ever[me] = 1 }
  :: atomic { !ahead[me] && voted[me] == NONE && VOTES_FIRST(me) ->
       select(content : 0 .. 1);
       voted[me] = content;
       votes[content] = votes[content] | BIT(me);
       assert(!(COUNTS(0) && COUNTS(1)));
       if
       :: COUNTS(content) -> certified = content
       :: else
       fi
       content = 0 }
  :: atomic { !ahead[me] && certified != NONE -> ahead[me] = 1 }
  :: atomic { ahead[me] && voted_next[me] == NONE && HAS(survivors, me) && VOTES_NEXT(me) ->
       select(content : 0 .. 1);
       voted_next[me] = content;
       votes_next[content] = votes_next[content] | BIT(me);
       assert(!(COUNTS_NEXT(0) && COUNTS_NEXT(1)));
       content = 0 }
  :: atomic { !HAS(crashed, me) -> crash(me) }
  od
}

init {
  byte party;
  atomic {
    select(party : 0 .. EVERYONE);
    survivors = party;
    if
    :: SIZE(survivors) < SMALLEST_COHORT -> survivors = EVERYONE
    :: else
    fi
    for (party : 0 .. HONEST - 1) { run Participant(party) }
    party = 0
  }
}
